"""What to type next: advice of the command line's own, by the code of a refusal."""

from earshift.engine.refusal import Refusal

ADVICE = {
    "no-such-person": (
        "`earshift person list` shows everybody, `earshift person add --code CODE` adds somebody"
    ),
    "no-reference": "run `earshift exam` or `earshift import` first",
    "baseline-unusable": "name another exam with --reference",
    "unfinished-exam": "continue it with `earshift resume {exam}`, or abandon it with --set-aside",
    "calibration": "fix this first, or give --accept-calibration: every result will say so",
    "device-blocked": "record the new calibration with `earshift device calibrated {device}`",
    "plays-in-browser": "run `earshift serve` and test there",
    "needs-table": "enter it in the browser, on the page of the device: `earshift serve`",
    "unverified-rule": "earshift uses it only from Python, with allow_unverified=True",
    "no-zone": "give one such as Europe/Berlin with --timezone",
    "older-schema": "run `earshift db upgrade`",
    "moved-on": "`earshift resume {exam}` loads it again",
    "merged": "`earshift person separate` takes a merge back",
    "rejected-rows": "correct the file, explain its codes with --sentinel, or give --skip-rejected",
    "unencrypted": (
        "give --certificate and --key, or put a proxy with TLS in front of it and give "
        "--behind-proxy ADDRESS"
    ),
    "day-first": "if the whole file has dates such as 31.12.2026, give --day-first",
    "decimal-comma": "if the whole file has numbers such as 12,5, give --decimal-comma",
    "needs-account": "add one first: earshift user add NAME --role admin",
    "no-admin": "enable one, or add one: earshift user add NAME --role admin",
    "port-taken": "another program may be using it: give another --port",
    "half-a-certificate": "give both --certificate and --key",
    "proxy-address": "--behind-proxy takes an address or network such as 127.0.0.1",
    "host-name": "--allowed-host takes a name such as hearing.example.org",
    "not-a-reviewer": "give their name with --author",
    "first-password": "`earshift user password {user} --own` changes it",
    "not-a-terminal": "to read it from a pipe, give --password-stdin",
}


def advised(message: object) -> str:
    """A message with what to do about it, in one line."""
    if not isinstance(message, Refusal):
        return str(message)
    advice = ADVICE.get(message.code, "")
    for name, value in message.named.items():
        advice = advice.replace(f"{{{name}}}", str(value))
    text = str(message)
    if not advice:
        return text
    return f"{text} {advice[0].upper()}{advice[1:]}" if text.endswith(".") else f"{text}; {advice}"
