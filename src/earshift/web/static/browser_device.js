// @ts-check
/* This browser as a device: what tells it from another one. */

/**
 * Names without versions: an update of the browser does not change the sound.
 * @type {readonly (readonly [string, string])[]}
 */
const BROWSERS = [
  ["Edg", "Edge"],
  ["OPR", "Opera"],
  ["SamsungBrowser", "Samsung Internet"],
  ["Firefox", "Firefox"],
  ["FxiOS", "Firefox"],
  ["CriOS", "Chrome"],
  ["Chrome", "Chrome"],
  ["Safari", "Safari"],
];
/** @type {readonly (readonly [string, string])[]} */
const SYSTEMS = [
  ["iPhone", "iOS"],
  ["iPad", "iOS"],
  ["Android", "Android"],
  ["CrOS", "ChromeOS"],
  ["Windows", "Windows"],
  ["Mac OS X", "macOS"],
  ["Linux", "Linux"],
];

/** @param {readonly (readonly [string, string])[]} names */
function nameIn(names) {
  return names.find(([mark]) => navigator.userAgent.includes(mark))?.[1] ?? "unknown";
}

// Two tablets of one make are alike in all that a script can see: a random number of its own tells
// them apart. It is made when this browser becomes a device, and stays in it.
const INSTALLATION = "installation";

export function becomeDevice() {
  if (localStorage.getItem(INSTALLATION) === null) {
    localStorage.setItem(INSTALLATION, crypto.randomUUID());
  }
}

/** @returns {Pick<Fingerprint, "browser" | "system" | "installation">} */
function thisBrowser() {
  const installation = localStorage.getItem(INSTALLATION);
  return {
    browser: nameIn(BROWSERS),
    system: nameIn(SYSTEMS),
    ...(installation === null ? {} : { installation }),
  };
}

/**
 * Whether a test was planned for another browser than this. What the headphones bring along (sample
 * rate, channels) is compared when they are on.
 * @param {Partial<Fingerprint>} planned
 */
export function isAnotherBrowser(planned) {
  const here = thisBrowser();
  /** @type {(keyof typeof here)[]} */
  const compared = ["browser", "system", INSTALLATION];
  return compared.some((name) => planned[name] && planned[name] !== here[name]);
}

/**
 * What the browser knows of this device, with what the user typed of it: earphones, connection and
 * volume can be read by no script.
 * @param {Partial<Fingerprint>} [typed]
 * @param {AudioContext | null} [ctx]
 * @returns {Fingerprint}
 */
export function fingerprint(typed = {}, ctx = null) {
  const { earphones = "", connection = "unknown", volume = "" } = typed;
  const audio = ctx ?? new AudioContext();
  const found = {
    ...thisBrowser(),
    sample_rate: audio.sampleRate,
    channels: audio.destination.maxChannelCount,
    earphones,
    connection,
    volume,
  };
  if (!ctx) audio.close();
  return found;
}
