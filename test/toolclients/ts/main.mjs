// Uses the TypeScript helper as an application does: functions of this process are tools of code in a container.
import { deepStrictEqual as same, rejects } from 'node:assert'
import { createInterface } from 'node:readline'
import { serve } from './index.js'

// A connection that is kept may be one to the daemon that was replaced.
const headers = { 'X-Api-Key': process.env.BERTH_API_KEY, 'Content-Type': 'application/json', Connection: 'close' }
const api = async (method, path, body) => {
  const res = await fetch(process.env.BERTH_HOST + path, { method, body: body && JSON.stringify(body), headers })
  if (!res.ok) throw new Error(`${path}: ${res.status} ${await res.text()}`)
  return res.json()
}
const create = async allow => (await api('POST', '/v1/containers', { code_tools: { allow } })).id
const box = await create(['page', 'add', 'fail', 'meet'])
const run = async (code, language = 'python') => {
  const out = await api('POST', '/v1/run_code', { container: box, code, language })
  return out.error_detail?.name ?? (out.results.join('') || out.logs.stdout.join(''))
}

let here = 0
const all = Promise.withResolvers?.() ?? (() => { const o = {}; o.promise = new Promise(resolve => { o.resolve = resolve }); return o })()

await rejects(serve('container_0000000000000000000000', { page: () => 1 }), /container_0/)
await rejects(serve(box, { page: () => 1 }, { apiKey: 'another' }))
const server = await serve(box, {
  page: { description: 'A page.', parameters: { u: 'string', n: 'integer?' }, run: async ({ u, n = 3 }) => `page ${u} ${n}` },
  add: { inputSchema: { type: 'object', properties: { a: { type: 'number' }, b: { type: 'number' } }, required: ['a', 'b'] }, run: ({ a, b }) => ({ sum: a + b }) },
  meet: async () => { // returns only when eight calls are here
    if (++here === 8) all.resolve()
    await all.promise
    return here
  },
  fail: () => { throw new RangeError('too far') },
  hidden: () => 'secret'
})
same([...server.names].sort(), ['add', 'fail', 'meet', 'page'])
same(await run("page('x') + tools.page('y', n=1)"), "'page x 3page y 1'")
same(await run('(await add(1, 2)).sum', 'js'), '3')
same(await run("tools add a=4 b=5; tools page --u z", 'bash'), '{"sum":9}\npage z 3\n')
same(await run('(await Promise.all([...Array(8)].map(() => meet()))).join()', 'js'), "'8,8,8,8,8,8,8,8'")
for (const [code, error] of [['fail()', 'RuntimeError'], ['page(1)', 'ValueError'], ['page()', 'ValueError'], ["tools.hidden('x')", 'PermissionError']]) same(await run(code), error)
same(await run("(await Promise.all([...Array(50).keys()].map(i => page(String(i))))).reduce((n, p) => n + p.length, 0)", 'js'), String(50 * 'page  3'.length + 90))

// A command that outlives the daemon continues its calls, and so does this process.
const other = await create(['slow'])
let began
const called = new Promise(resolve => { began = resolve })
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()
const restarted = called.then(() => { console.log('restart'); return lines.next() })
const second = await serve(other, { slow: async ({ n }) => { began(); await restarted; return n * n } })
const { id } = await api('POST', `/v1/containers/${other}/exec`, { command: "node -e 'const t = require(\"tools\"); t.slow({ n: 7 }).then(async v => console.log(v, await t.slow({ n: 8 })))'", background: true })
await restarted
const { result } = await api('GET', `/v1/containers/${other}/execs/${id}/result?wait_seconds=60`)
same(result.stdout, '49 64\n')
await second.close()
await second.ended
await server.close()
same(await run("page('x')"), 'NameError')
console.log('done')
process.exit(0)
