// Takes pictures of pages: node shots.mjs '[{"page", "out", "width", "scheme", "scale", "from", "height"}, ...]'
// "from": a selector whose top is the picture's; "height" pixels of the page from there (else the whole page).
import { pathToFileURL } from "node:url";
import { browser } from "./browser.mjs";

const running = await browser();
for (const shot of JSON.parse(process.argv[2])) {
  const page = await running.newPage({
    viewport: { width: shot.width, height: 100 }, colorScheme: shot.scheme, deviceScaleFactor: shot.scale,
  });
  await page.goto(pathToFileURL(shot.page).href);
  const all = await page.evaluate(() => document.documentElement.scrollHeight);
  const top = shot.from ? (await page.locator(shot.from).boundingBox()).y - 12 : 0;
  const clip = { x: 0, y: top, width: shot.width, height: Math.min(shot.height ?? all, all - top) };
  await page.screenshot({ path: shot.out, fullPage: true, clip });
  await page.close();
}
await running.close();
