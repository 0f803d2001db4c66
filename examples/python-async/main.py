import asyncio

from berth import AsyncClient, AsyncSandbox


async def count_primes(client: AsyncClient, first: int) -> int:
    code = f"sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range({first}, {first + 1000}))"
    async with await AsyncSandbox.create(client=client) as sandbox:
        return int((await sandbox.code.run(code)).text)


async def main():
    async with AsyncClient() as client:  # one connection pool for all sandboxes
        counts = await asyncio.gather(*[count_primes(client, first) for first in (2, 1002, 2002)])
        print("primes in each range:", counts)

asyncio.run(main())
