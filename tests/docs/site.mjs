// Looks at the built site as readers do and prints what it sees as JSON: node site.mjs FOLDER PAGE...
import fs from "node:fs";
import http from "node:http";
import path from "node:path";
import { browser } from "../page/browser.mjs";

const [folder, ...pages] = process.argv.slice(2);
const TYPES = { ".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".json": "application/json", ".svg": "image/svg+xml" };
const server = http.createServer((request, response) => {
  let file = path.join(folder, decodeURIComponent(new URL(request.url, "http://site").pathname));
  if (fs.existsSync(file) && fs.statSync(file).isDirectory()) file = path.join(file, "index.html");
  const there = fs.existsSync(file);
  response.writeHead(there ? 200 : 404, { "content-type": TYPES[path.extname(file)] ?? "application/octet-stream" });
  response.end(there ? fs.readFileSync(file) : "");
});
await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
const base = `http://127.0.0.1:${server.address().port}`;
const running = await browser();
const found = { views: [] };

for (const name of pages) {
  for (const [width, colorScheme] of [[1280, "light"], [390, "dark"]]) {
    const page = await running.newPage({ viewport: { width, height: 900 }, colorScheme });
    const view = { name, width, colorScheme, errors: [], outside: [] };
    page.on("console", (message) => ["error", "warning"].includes(message.type()) && view.errors.push(message.text()));
    page.on("pageerror", (error) => view.errors.push(String(error)));
    page.on("request", (one) => !/^data:|^blob:/.test(one.url()) && !one.url().startsWith(base) && view.outside.push(one.url()));
    await page.goto(`${base}/${name}`);
    Object.assign(view, await page.evaluate(() => ({
      wide: document.documentElement.scrollWidth,
      background: getComputedStyle(document.body).backgroundColor,
      broken: [...document.images].filter((one) => !one.complete || !one.naturalWidth).map((one) => one.src),
      title: document.querySelector("h1")?.textContent,
    })));
    found.views.push(view);
    await page.close();
  }
}

// An anchor of a key leads to the key, and the search finds a rule.
const page = await running.newPage({ viewport: { width: 1280, height: 900 } });
await page.goto(`${base}/keys/deepspeed/zero_optimization/#zero_optimization.offload_optimizer.device`);
const key = page.locator('[id="zero_optimization.offload_optimizer.device"]');
await page.waitForFunction((one) => Math.abs(one.getBoundingClientRect().top) < innerHeight, await key.elementHandle());
found.anchor = { text: await key.textContent(), top: Math.round((await key.boundingBox()).y) };
// What is typed before the page listens is lost: on a busy machine it is typed again.
for (let left = 12; left > 0; left--) {
  await page.fill(".md-search__input", "");
  await page.fill(".md-search__input", "weights-not-saved");
  const shown = page.waitForSelector(".md-search-result__link", { timeout: 5000 });
  if (await shown.then(() => true, (error) => left === 1 && Promise.reject(error))) break;
}
found.search = await page.locator(".md-search-result__link").first().getAttribute("href");
await running.close();
server.close();
console.log(JSON.stringify(found));
