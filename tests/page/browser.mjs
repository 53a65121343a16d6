// A headless Chromium for tests and pictures: `import { browser } from ".../browser.mjs"`.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(new URL("../node/package.json", import.meta.url));
const load = async (name) => import(pathToFileURL(require.resolve(name)).href);

/** A running browser; close it when done. */
export async function browser() {
  const { chromium } = require("playwright-core");
  const packed = (await load("@sparticuz/chromium")).default;
  // In one process a page that is closed takes the browser with it.
  const args = packed.args.filter((one) => one !== "--single-process");
  return chromium.launch({ executablePath: await packed.executablePath(), args, headless: true });
}
