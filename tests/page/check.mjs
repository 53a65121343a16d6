// Looks at a page as readers do and prints what it sees as JSON: node check.mjs PAGE.html
import { pathToFileURL } from "node:url";
import { browser } from "./browser.mjs";

const file = pathToFileURL(process.argv[2]).href;
const running = await browser();
const found = { views: [] };

/** What is wrong with the text of the page: contrast below 4.5 (3 for large letters), as [text, ratio]. */
function contrast() {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const light = (pixel) => {
    const part = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(pixel[0]) + 0.7152 * part(pixel[1]) + 0.0722 * part(pixel[2]);
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const pixel = rgba(getComputedStyle(at).backgroundColor);
      if (pixel[3] === 255) return pixel;
    }
    return rgba("white");
  };
  const bad = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let seen = 0;
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || ["SCRIPT", "STYLE"].includes(element.tagName)) continue;
    if (!element.checkVisibility()) continue;
    seen += 1;
    const style = getComputedStyle(element);
    const [one, other] = [light(rgba(style.color)), light(behind(element))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) bad.push([texts.currentNode.data.trim().slice(0, 40), Math.round(ratio * 100) / 100]);
  }
  return { seen, bad };
}

for (const width of [1280, 390]) {
  for (const colorScheme of ["light", "dark"]) {
    const page = await running.newPage({ viewport: { width, height: 900 }, colorScheme });
    const view = { width, colorScheme, errors: [], requests: [] };
    page.on("console", (message) => view.errors.push(message.text()));
    page.on("pageerror", (error) => view.errors.push(String(error)));
    page.on("request", (request) => {
      if (request.url() !== file && !request.url().startsWith("data:")) view.requests.push(request.url());
    });
    await page.goto(file);
    await page.evaluate(() => document.querySelectorAll("details").forEach((one) => (one.open = true)));
    Object.assign(view, await page.evaluate(() => ({
      wide: document.documentElement.scrollWidth,
      hacked: window.hacked === true,
      scripts: document.scripts.length,
      broken: [...document.images].filter((one) => !one.complete || !one.naturalWidth).length,
      shown: [...document.images].map((one) => one.naturalWidth),
      unnamed: [...document.images].filter((one) => !one.alt.trim()).length,
      headings: [...document.querySelectorAll("h1,h2,h3,h4")].map((one) => +one.tagName[1]),
      lang: document.documentElement.lang,
      dark: getComputedStyle(document.body).backgroundColor,
    })));
    view.contrast = await page.evaluate(contrast);
    found.views.push(view);
    await page.close();
  }
}

const page = await running.newPage();
await page.goto(file);
const rows = () => page.locator(".setting:visible").count();
if (await page.locator("#words").count()) {
  found.filter = { all: await rows() };
  await page.fill("#words", "stage3");
  found.filter.stage3 = await page.locator(".setting:visible .key").allTextContents();
  found.filter.told = await page.locator("#count").textContent();
  await page.fill("#words", "no such word");
  found.filter.none = await rows();
  await page.fill("#words", "");
  found.filter.again = await rows();
  await page.check("#defaults");
  found.filter.groups = await page.locator(".group:visible > summary").allTextContents();
}
await page.close();
const quiet = await running.newPage({ javaScriptEnabled: false });
await quiet.goto(file);
found.without_script = await quiet.locator(".setting:visible").count();
console.log(JSON.stringify(found));
await running.close();
