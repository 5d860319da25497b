"""The examiner's pages as they leave the server: who gets which, and what may stand in them."""

import ast
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from urllib.parse import quote

import pytest

import earshift
import earshift.web
from earshift.records import EXAM_STATES
from earshift.report.words import ENGLISH
from earshift.store.accounts import sha256
from earshift.web import Settings, pages
from support.web import TestClient, client_of, sign_in, with_users

WEB = Path(earshift.web.__file__).parent
TEMPLATES = sorted((WEB / "templates").iterdir())
SCRIPTS = sorted((WEB / "static").glob("*.js"))
# Names of browsers; what the player says when it refuses a tone, to whoever repairs it.
WITH_ENGLISH = {"browser_device.js", "player.js", "tone.js"}
# What the listener's page loads: nothing there may know the examiner's side of the API.
OF_LISTENER = {
    "api.js",
    "audiogram.js",
    "audiogram_marks.js",
    "browser_device.js",
    "dom.js",
    "ears.js",
    "format.js",
    "kept.js",
    "listen.js",
    "listen_server.js",
    "player.js",
    "refusal.js",
    "released.js",
    "setup.js",
    "side_check.js",
    "table.js",
    "tone.js",
}
OF_LISTENER_TEXTS = ("listen.", "setup.", "audiogram.", "chart.", "ear.")
TEXTS = pages.texts() | pages.texts("listen.")

EXAMINER_ADDRESSES = [path.replace("{handle}", "Zx9") for path in pages.EXAMINER_PAGES]
ADMIN_ADDRESSES = list(pages.ADMIN_PAGES)
SEEN = ("title", "alt", "placeholder", "aria-label", "value")  # attributes that a person may read
NAMES = {
    "earshift",
    "Enter",
    "Escape",
    "H",
    "Listener",
    "N",
    "P",
}  # of the program, of keys and of a scheme: the same in every language


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    db = str(tmp_path_factory.mktemp("pages") / "clinic.db")
    with_users(db)
    with client_of(Settings(db=db), follow_redirects=False) as client:
        yield client


@pytest.fixture(params=["ada", "bob"])
def signed_in(client: TestClient, request: pytest.FixtureRequest) -> Iterator[TestClient]:
    headers = sign_in(client, request.param)
    yield client
    client.post("/api/logout", headers=headers)
    client.cookies.clear()


@pytest.fixture
def admin(client: TestClient) -> Iterator[TestClient]:
    headers = sign_in(client, "ada")
    yield client
    client.post("/api/logout", headers=headers)
    client.cookies.clear()


class Elements(HTMLParser):
    """All elements with their attributes, and the text that stands in them."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self._within: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attributes}))
        self._within.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._within:
            while self._within.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if data.strip() and "script" not in self._within:
            self.texts.append(data.strip())


# Who gets which page


@pytest.mark.parametrize("address", [*EXAMINER_ADDRESSES, *ADMIN_ADDRESSES])
def test_nobody_is_sent_to_sign_in(client: TestClient, address: str) -> None:
    answer = client.get(address)
    wanted = "/login" if address == "/" else f"/login?next={quote(address, safe='')}"
    assert (answer.status_code, answer.headers["location"]) == (303, wanted)


def test_the_sign_in_page_is_for_everybody(client: TestClient) -> None:
    answer = client.get("/login")
    assert answer.status_code == 200
    assert 'type="password"' in answer.text


@pytest.mark.parametrize("address", EXAMINER_ADDRESSES)
def test_examiners_and_admins_get_the_clinics_pages(signed_in: TestClient, address: str) -> None:
    answer = signed_in.get(address)
    assert answer.status_code == 200
    found = Elements(answer.text).found
    tags = [tag for tag, _ in found]
    assert tags.count("h1") == tags.count("main") == 1
    assert {"header", "nav", "footer"} <= set(tags)
    if "Zx9" in address:
        (body,) = [given for tag, given in found if tag == "body"]
        assert body["data-handle"] == "Zx9"


@pytest.mark.parametrize("address", ADMIN_ADDRESSES)
def test_admins_pages_are_theirs_alone(signed_in: TestClient, address: str) -> None:
    role = signed_in.get("/api/me").json()["role"]
    answer = signed_in.get(address)
    assert answer.status_code == (200 if role == "admin" else 403)
    assert answer.headers["content-type"].startswith("text/html")
    assert (f'href="{address}"' in signed_in.get("/").text) == (role == "admin")


def test_a_single_user_has_no_accounts_to_see(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "own.db"), single_user=True, launch_sha256=sha256("once"))
    with client_of(settings) as client:
        first = client.get("/open?token=once")
        assert first.url.path == "/"
        assert 'href="/users"' not in first.text
        assert "sign-out" not in first.text
        assert 'href="/audit"' in first.text


def test_a_wrong_address_is_a_page_that_leads_home_and_repeats_nothing(client: TestClient) -> None:
    answer = client.get("/no-such-place-Quux")
    assert answer.status_code == 404
    assert TEXTS["error.404"] in answer.text
    assert "Quux" not in answer.text
    assert ("a", {"class": "button main", "href": "/"}) in Elements(answer.text).found


def test_a_wrong_address_of_the_api_is_json(client: TestClient) -> None:
    answer = client.get("/api/no-such-place")
    assert answer.status_code == 404
    assert set(answer.json()) == {"detail"}


def test_what_stands_in_an_address_is_escaped(admin: TestClient) -> None:
    answer = admin.get("/people/%22%3E%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert "<script>alert" not in answer.text


def test_scripts_are_asked_for_anew_after_an_upgrade(client: TestClient) -> None:
    answer = client.get("/static/page.js")
    assert answer.headers["cache-control"] == "no-cache"
    again = client.get("/static/page.js", headers={"If-None-Match": answer.headers["etag"]})
    assert again.status_code == 304


# What may stand in a page


@pytest.mark.parametrize("address", ["/login", *EXAMINER_ADDRESSES, *ADMIN_ADDRESSES, "/nowhere"])
def test_a_page_has_no_inline_script_or_style_and_its_links_lead_somewhere(
    admin: TestClient, address: str
) -> None:
    page = Elements(admin.get(address).text)
    for tag, attributes in page.found:
        assert tag != "style"
        assert "style" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        if tag == "script":
            assert "src" in attributes or attributes.get("type") == "application/json"
        link = attributes.get("href" if tag in ("a", "link") else "src", "")
        if link.startswith("#"):
            assert any(each.get("id") == link[1:] for _, each in page.found), link
        elif link:
            assert link.startswith("/")
            assert admin.get(link).status_code == 200, link


@pytest.mark.parametrize("address", ["/login", *EXAMINER_ADDRESSES, *ADMIN_ADDRESSES])
def test_every_control_has_a_label_and_every_id_is_there_once(
    admin: TestClient, address: str
) -> None:
    source = admin.get(address).text
    found = Elements(source).found
    ids = [attributes["id"] for _, attributes in found if "id" in attributes]
    assert len(ids) == len(set(ids))
    labelled = {attributes.get("for") for tag, attributes in found if tag == "label"}
    for tag, attributes in found:
        if tag in ("input", "select", "textarea") and attributes.get("type") not in (
            "radio",
            "checkbox",
        ):
            assert attributes["id"] in labelled, attributes
        for name in ("aria-labelledby", "aria-describedby", "aria-controls"):
            for referred in attributes.get(name, "").split():
                assert referred in ids, (tag, attributes)


def imported_by(script: Path) -> set[str]:
    wanted = re.findall(r'(?: from |import\()"\./([^"]+)"', script.read_text())
    return {script.name}.union(*(imported_by(WEB / "static" / name) for name in wanted))


def test_the_listeners_page_loads_its_own_scripts_alone() -> None:
    assert imported_by(WEB / "static" / "listen.js") == OF_LISTENER


def test_the_listeners_page_has_the_texts_of_its_scripts_and_no_others(client: TestClient) -> None:
    page = client.get("/listen").text
    found = re.search(r'<script type="application/json" id="texts">(.*?)</script>', page)
    assert found is not None
    texts = json.loads(found[1])
    assert set(texts) == {key for key in TEXTS if key.startswith(OF_LISTENER_TEXTS)}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.name)
def test_scripts_are_checked(script: Path) -> None:
    assert script.read_text().startswith("// @ts-check\n")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda file: file.name)
def test_scripts_write_no_html_and_load_nothing_from_elsewhere(script: Path) -> None:
    source = script.read_text()
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert forbidden not in source
    for wanted in re.findall(r'(?: from |import\()"([^"]+)"', source):
        assert wanted.startswith("./"), wanted
        assert (WEB / "static" / wanted).is_file()
    addresses = re.findall(r"https?://[^\"'` ]+", source)
    assert addresses in ([], ["http://www.w3.org/2000/svg"])


# The texts


def test_every_text_that_is_used_exists() -> None:
    for file in [*TEMPLATES, *SCRIPTS]:
        source = file.read_text()
        for key in re.findall(r'\b(?:t|find)\(\s*"([a-z_0-9.-]+[^.])"', source):
            assert key in TEXTS, f"{key} of {file.name}"
        for group in re.findall(r'\b(?:word|t)\("([a-z_.]+?)(?:"|\." ~)', source):
            known = group in TEXTS or any(key.startswith(f"{group}.") for key in TEXTS)
            assert known, f"{group} of {file.name}"
    for name in [*pages.EXAMINER_PAGES.values(), *pages.ADMIN_PAGES.values(), "login", "error"]:
        assert {f"{name}.title", f"{name}.heading"} <= set(TEXTS)


def test_every_text_is_used() -> None:
    sources = "\n".join(file.read_text() for file in [*TEMPLATES, *SCRIPTS])
    literals = set(re.findall(r'"([a-z_]+\.[^"\s]+)"', sources)) | {"language"}
    groups = {
        *re.findall(r'\bword\("([a-z_.]+)"', sources),
        *re.findall(r"\bfind\(`([a-z_]+)\.\$\{", sources),
        *re.findall(r't\("([\w.]+)\." ~', sources),
        *re.findall(r'\boptions\("(\w+)"', sources),
    }
    by_name = set(re.findall(r't\(name ~ "\.(\w+)"\)', sources))
    by_reader = set(re.findall(r't\(reader ~ "\.([\w.]+)"\)', sources))
    hints = {"again", "swapped", "mono", "nothing", "unheard", "loud", "soft"}  # of the set-up
    hints |= set(re.findall(r'hint\("\w+", "(\w+)"\)', sources))
    hints |= set(re.findall(r'"(left_out)"', sources))
    for key in TEXTS:
        group, _, rest = key.partition(".")
        of_setup = group in ("desk", "listen", "setup")
        step, _, hint = rest.partition(".")
        assert (
            key in literals
            or key.rpartition(".")[0] in groups
            or group in groups
            or rest in by_name
            or (of_setup and rest in by_reader)
            or (of_setup and step in ("sides", "volume") and hint in hints)
        ), key


def test_whoever_shows_a_text_gives_all_it_asks_for() -> None:
    """A name in braces that nobody gives would be shown as "undefined"."""
    checked = 0
    for file in SCRIPTS:
        for key, given in re.findall(
            r'\b(?:t|find)\("([a-z_0-9.]+)"(?:, (\{.*?\}|\w+))?\)', file.read_text()
        ):
            asked = set(re.findall(r"\{(\w+)\}", TEXTS[key]))
            if given.startswith("{") or not given:
                names = set(re.findall(r"(\w+)(?=[:,]| \})", given))
                assert asked <= names, f"{key} of {file.name} is given {given}"
                checked += bool(asked)
    assert checked > 20


def test_no_english_stands_in_a_template() -> None:
    for file in TEMPLATES:
        plain = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}", " ", file.read_text(), flags=re.DOTALL)
        page = Elements(plain)
        shown = [
            attributes[name]
            for tag, attributes in page.found
            for name in SEEN
            if name in attributes and not (tag == "input" and name == "value")
        ]
        for text in [*page.texts, *shown]:
            assert not set(re.findall(r"[A-Za-z]+", text)) - NAMES, f"{file.name}: {text}"


def test_no_english_stands_in_a_script() -> None:
    for file in SCRIPTS:
        if file.name in WITH_ENGLISH:
            continue
        code = re.sub(r"/\*.*?\*/|//[^\n\"`]*$", "", file.read_text(), flags=re.DOTALL | re.M)
        for double, template in re.findall(r'"((?:[^"\\\n]|\\.)*)"|`([^`]*)`', code):
            literal = re.sub(r"\$\{[^}]*\}", "", double or template)
            sentence = re.match(r"[A-Z][a-z]+( |$)", literal) or re.search(r"[a-z] [A-Z]", literal)
            assert not sentence or literal.strip() in NAMES, f"{file.name}: {literal}"


def test_texts_hold_no_markup_and_are_not_empty() -> None:
    # As pairs: of two texts with one key, the second would stand where the first should.
    stored = json.loads((WEB / "texts" / "en.json").read_text(), object_pairs_hook=list)
    assert len(stored) == len(dict(stored))
    for key, text in stored:
        assert isinstance(text, str)
        assert text.strip(), key
        assert "<" not in text, key


QUAINT = re.compile(
    r"gone on with|how-manieth|\bmend\b|\bgo on\b|^to the person|\b[a-z]+-sts\b|\bniosh-15\b", re.I
)


def test_texts_are_plain_english() -> None:
    """Words that readers stumbled over, and rules by their id instead of their name."""
    for key, text in TEXTS.items():
        assert not QUAINT.search(text), f"{key}: {text}"


def test_a_verdict_has_the_same_words_as_on_paper() -> None:
    texts = json.loads((WEB / "texts" / "en.json").read_text(encoding="utf-8"))
    here = {key.removeprefix("decision."): text for key, text in texts.items() if
            key.startswith("decision.")}  # fmt: skip
    assert here == dict(ENGLISH.decisions)


def test_no_form_is_sent_before_its_script_is_there() -> None:
    """The browser itself would put what was typed, names among it, into the address."""
    own = {"login": "post", "export": "get"}  # a password in the body; days and a format
    forms = [
        (re.search(r'id="(.+?)"', form), re.search(r'method="(.+?)"', form))
        for page in TEMPLATES
        for form in re.findall(r"<form[^>]*>", page.read_text(encoding="utf-8"))
    ]
    assert len(forms) > len(own)
    for name, method in forms:
        assert name is not None
        assert method is not None
        assert method[1] == own.get(name[1], "dialog")


# Where the subject and the action stand among the arguments of what writes to the audit.
AUDITS = {"add_audit": (3, 2), "disclosed": (3, 2), "viewed": (1, 2), "record_view": (2, 3)}


def audited() -> Iterator[tuple[str, str]]:
    """Action and subject of every line of the audit that the package writes, read from its code."""
    for path in Path(earshift.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func).rpartition(".")[2]
            named = {one.arg: one.value for one in node.keywords}
            if called in ("add_row", "add_only"):
                names = [
                    ast.unparse(one) for one in node.args[1:2] if isinstance(one, ast.Attribute)
                ]
                # Of keys each kind has words of its own.
                yield from (("add", f"{one[2:]}:1") for one in names if one != "t.keys")
            elif called == "_add_key":
                yield from ((action, literals(named["kind"])[0]) for action in ("add", "end"))
            elif called in AUDITS:
                subject, action = (
                    named.get(name, node.args[at] if len(node.args) > at else None)
                    for name, at in zip(("subject", "action"), AUDITS[called], strict=True)
                )
                actions = ["view"] if action is None else literals(action)
                yield from product(actions, literals(subject))


def literals(node: ast.expr | None) -> list[str]:
    """What an argument can be; nothing of one that is handed on."""
    if isinstance(node, ast.Constant):
        return [str(node.value)]
    if isinstance(node, ast.IfExp):
        return [*literals(node.body), *literals(node.orelse)]
    if not isinstance(node, ast.JoinedStr):
        return []
    text = "".join(str(one.value) if isinstance(one, ast.Constant) else "*" for one in node.values)
    return [text.replace("*", state) for state in EXAM_STATES] if text == "exam *" else [text]


def test_the_audit_has_words_for_all_that_is_written_to_it() -> None:
    written = set(audited())
    assert {("add", "signed:1"), ("end", "link"), ("exam done", "exams:*")} <= written
    # The floor that all tables stand on; keys, whose kinds have the words; an address as it is.
    others = {("add", "*:*"), ("end", "keys:*"), ("refused", "* *")}
    wordless = []
    for action, subject in written - others:
        kind, number = subject.partition(":")[::2]
        whole = {f"audit_did.{action}.{kind}", f"audit_alone.{action}"}
        parts = {f"audit_did.{action}", f"audit_{'of' if number else 'all'}.{kind}"}
        if not (whole & TEXTS.keys() or parts <= TEXTS.keys()):
            wordless.append((action, subject))
    assert sorted(wordless) == []
