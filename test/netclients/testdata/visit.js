// Prints the title of a page, which a script in it sets. Debian's Chromium has a list of authorities of its own.
const { chromium } = require("/usr/local/lib/node_modules/playwright-core");

(async () => {
	const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: ["--no-sandbox"] });
	try {
		const page = await browser.newPage({ ignoreHTTPSErrors: true });
		await page.goto(process.argv[2]);
		await page.waitForFunction(() => document.title !== "none");
		console.log(await page.title());
	} finally {
		await browser.close();
	}
})();
