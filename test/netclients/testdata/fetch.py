# Prints what is at a URL, by aiohttp.
import aiohttp, asyncio, sys


async def main():
    async with aiohttp.ClientSession() as s, s.get(sys.argv[1]) as r:
        print(await r.text())


asyncio.run(main())
