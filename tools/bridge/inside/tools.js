// The tools that this session may call, as functions: await tools.fetch(u), await tools['fetch'](u); await tools()
// lists them. This file holds no secrets and makes no decisions: the daemon has the list and checks each call. Calls
// that code makes without waiting between them share one request.
'use strict'
const http = require('http')
const { randomUUID } = require('crypto')

const BATCH = 64 // maximum calls of one request; the daemon's limit
const REQUESTS = 3 // concurrent requests: their calls stay below the daemon's limit of 256; further requests wait
const LARGEST = 1 << 20 // maximum bytes of an input; the daemon's limit
// Maximum bytes of the calls of one request. The daemon accepts 16 MiB a request and 32 MiB in all requests under way,
// which has to suffice for REQUESTS requests.
const FULL = 8 << 20
const PATIENCE = 300e3 // ms of retries since the daemon's last answer
const PAUSE = 1000 // ms of the longest pause between two tries

// Errors have Python's names, because the daemon uses those.
const errors = {}
for (const name of ['PermissionError', 'NameError', 'ValueError', 'TimeoutError', 'RuntimeError']) {
  errors[name] = { [name]: class extends Error {
    get name () { return name }
  } }[name]
}

const statuses = { 400: 'ValueError', 401: 'PermissionError', 403: 'PermissionError', 413: 'ValueError' }

// Broken means that the connection ended before the daemon answered everything.
class Broken extends Error {}

// refusal returns the error for a response with another status than 200.
const refusal = (status, body) => {
  let failure
  try {
    failure = JSON.parse(body).error
  } catch {}
  const said = failure?.message ?? `the daemon answered with status ${status}`
  if (status === 429 || status === 503) return new Broken(said) // the daemon is busy, stopping or starting
  return new (errors[failure?.type] ?? errors[statuses[status]] ?? errors.RuntimeError)(said)
}

// ask makes a request and calls each with the lines of its answer as they come.
const ask = (method, path, body, each, wait) => new Promise((resolve, reject) => {
  let url
  try {
    url = new URL(path, process.env.BERTH_TOOLS)
  } catch {
    return reject(new errors.RuntimeError('this command has no tools: BERTH_TOOLS is not in its environment'))
  }
  const broken = e => reject(new Broken(e?.message ?? 'the connection ended'))
  const headers = { authorization: `Bearer ${process.env.BERTH_TOOLS_TOKEN ?? ''}` }
  if (body) headers['content-length'] = Buffer.byteLength(body)
  if (body) headers['content-type'] = 'application/json'
  const req = http.request(url, { method, headers, agent: false }, res => {
    let rest = ''
    res.setEncoding('utf8')
    res.on('data', text => {
      rest += text
      if (res.statusCode !== 200) return
      const lines = rest.split('\n')
      rest = lines.pop()
      try {
        lines.forEach(each)
      } catch (e) {
        res.destroy()
        reject(e)
      }
    })
    res.on('end', () => {
      if (res.statusCode !== 200) return reject(refusal(res.statusCode, rest))
      try {
        if (rest) each(rest)
        resolve()
      } catch (e) {
        reject(e)
      }
    })
    res.on('error', broken)
    res.on('close', broken)
  })
  req.on('error', broken)
  if (wait) req.setTimeout(wait, () => req.destroy())
  req.end(body)
})

// given returns an input as JSON. It rejects an input that is too large, with the daemon's message, because no request
// has room for it.
const given = (name, input) => {
  let text
  try {
    text = JSON.stringify(input, (key, value) =>
      (value instanceof Set ? [...value] : value instanceof Map ? Object.fromEntries(value) : value))
    if (text === undefined) throw new TypeError('they say that they are nothing')
  } catch (e) {
    throw new errors.ValueError(`tool ${name}: the arguments are not JSON: ${e.message}`)
  }
  if (Buffer.byteLength(text) > LARGEST)
    throw new errors.ValueError(`an input has at most ${LARGEST} bytes; put what is larger into a file`)
  return text
}

let collected = []

// call asks the daemon to call a tool, in one request with all calls made before the event loop waits.
const call = (name, input) => new Promise((resolve, reject) => {
  const id = randomUUID()
  const text = `{"id":"${id}","tool":${JSON.stringify(name)},"input":${given(name, input)}}`
  if (collected.push({ id, text, size: Buffer.byteLength(text), resolve, reject }) === 1) setImmediate(flush)
})

// flush splits the collected calls into requests within the daemon's limits.
const flush = () => {
  let list = []
  let left = FULL
  for (const one of collected) {
    if (list.length === BATCH || (list.length > 0 && one.size > left)) {
      queue.push(list)
      list = []
      left = FULL
    }
    list.push(one)
    left -= one.size
  }
  queue.push(list)
  collected = []
  next()
}

const queue = []
let underWay = 0

// next sends queued requests, at most REQUESTS at a time.
const next = () => {
  for (; underWay < REQUESTS && queue.length > 0; underWay++) {
    send(queue.shift()).finally(() => {
      underWay--
      next()
    })
  }
}

const lost = e => new errors.RuntimeError(`the tools cannot be reached: ${e.message}`)

// retries waits before a retry, and throws after PATIENCE.
const retries = () => {
  let since, pause
  return {
    answered: () => { since = undefined },
    after: (began, e) => {
      const now = Date.now()
      // The request may have waited for its answer for a day. Then this is a new failure.
      if (since === undefined || now - began > PAUSE) [since, pause] = [now, 25]
      if (now - since > PATIENCE) throw lost(e)
      pause = Math.min(2 * pause, PAUSE)
      return new Promise(resolve => setTimeout(resolve, pause))
    }
  }
}

// send makes one request. If the connection breaks, it repeats the request with the same ids, which the daemon knows.
const send = async list => {
  const waiting = new Map(list.map(one => [one.id, one]))
  const again = retries()
  const settle = line => {
    const answer = JSON.parse(line)
    const one = waiting.get(answer.id)
    waiting.delete(answer.id)
    again.answered()
    if (answer.error) one?.reject(new (errors[answer.error.type] ?? errors.RuntimeError)(answer.error.message))
    else one?.resolve(answer.result)
  }
  const attempt = async () => {
    const began = Date.now()
    try {
      await ask('POST', '/v1/calls', `{"calls":[${[...waiting.values()].map(one => one.text).join()}]}`, settle)
      if (waiting.size > 0) throw new Broken('the answer has not all results')
    } catch (e) {
      if (!(e instanceof Broken)) throw e
      await again.after(began, e)
    }
  }
  try {
    while (waiting.size > 0) await attempt()
  } catch (e) {
    waiting.forEach(one => one.reject(e))
  }
}

let known = new Map() // the daemon's description of each tool, by name
const made = new Map() // a function for each name

// refresh gets the list from the daemon. Concurrent callers share one request.
let refreshing
const refresh = wait => {
  refreshing ??= load(wait).finally(() => { refreshing = undefined })
  return refreshing
}
const load = async wait => {
  let text = ''
  const take = line => { text += line + '\n' }
  const again = retries()
  while (true) {
    const began = Date.now()
    try {
      text = ''
      await ask('GET', '/v1/tools', undefined, take, wait)
      break
    } catch (e) {
      if (!(e instanceof Broken)) throw e
      if (wait) throw lost(e)
      await again.after(began, e)
    }
  }
  known = new Map(JSON.parse(text).tools.map(tool => [tool.name, tool]))
}

const identifier = name => name.replace(/[^\p{ID_Continue}$]/gu, '_')

// find returns the daemon's description of a tool by its name or its identifier.
const find = name => {
  const same = [...known.keys()].filter(n => identifier(n) === name)
  return known.get(name) ?? (same.length === 1 ? known.get(same[0]) : undefined)
}

const isObject = value =>
  value !== null && typeof value === 'object' && !Array.isArray(value) && !(value instanceof Map)

// input returns the input of a call. Positional arguments are the schema's properties in their order. A single object
// may be the whole input, and a last object may hold the remaining properties.
const input = (tool, args) => {
  const properties = tool.input_schema?.properties ?? {}
  const names = Object.keys(properties)
  const required = tool.input_schema?.required ?? []
  const fits = value => isObject(value) && Object.keys(value).every(n => names.includes(n))
  const has = (value, from) => required.every(n => n in value || names.indexOf(n) < from)
  const takes = i => [undefined, 'object'].includes(properties[names[i]]?.type)
  const last = args.length - 1
  if (last === 0 && isObject(args[0]) && (names.length === 0 || (fits(args[0]) && has(args[0], 0)) || !takes(0)))
    return args[0]
  const rest = last > 0 && fits(args[last]) && (last >= names.length || !takes(last)) ? args[last] : undefined
  const values = rest ? args.slice(0, last) : args
  if (values.length > names.length)
    throw new TypeError(`${tool.name}() takes ${names.length} arguments, but ${values.length} were given`)
  const out = { ...rest }
  values.forEach((value, i) => { if (value !== undefined) out[names[i]] = value })
  return out
}

// proxy returns the function for any name. The daemon rejects calls of tools that are not on its list.
const proxy = name => {
  if (made.has(name)) return made.get(name)
  const run = async (...args) => {
    if (!find(name)) await refresh()
    const tool = find(name)
    return tool ? call(tool.name, input(tool, args)) : call(name, isObject(args[0]) ? args[0] : {})
  }
  Object.defineProperty(run, 'name', { value: name })
  Object.defineProperty(run, 'toString', {
    value: () => `async function ${name}(${Object.keys(find(name)?.input_schema?.properties ?? {}).join(', ')}) ` +
      `{ /* ${find(name)?.description ?? 'a tool'} */ }`
  })
  made.set(name, run)
  return run
}

// equip adds the tools to a namespace, except where a name is taken, and removes tools that are gone. Only a tool
// called fetch replaces Node's own function, because a caller who lists that name means the tool.
const equipped = new Map()
const equip = async (names, module) => {
  await refresh(5000).catch(() => {})
  const mine = new Map([...known.keys()].map(name => [identifier(name), proxy(name)]))
  mine.set('tools', module)
  for (const [name, was] of equipped) {
    if (mine.has(name)) continue
    if (names[name] === was.value) was.before ? Object.defineProperty(names, name, was.before) : delete names[name]
    equipped.delete(name)
  }
  for (const [name, value] of mine) {
    if (equipped.has(name) || (name in names && !(name === 'fetch' && names[name] === nodes))) continue
    equipped.set(name, { value, before: Object.getOwnPropertyDescriptor(names, name) })
    Object.defineProperty(names, name, { value, writable: true, configurable: true, enumerable: false })
  }
}
const nodes = globalThis.fetch

// Names that await and inspection read from the module. They mean a tool only if the daemon lists one of that name.
const asked = new Set([
  'then', 'default', 'length', 'name', 'apply', 'call', 'bind', 'toString', 'constructor', 'toJSON', 'prototype',
  '__esModule', 'module.exports'
])

// list is the module itself as a function. It returns the daemon's descriptions of all tools.
const list = async () => {
  await refresh()
  return [...known.values()]
}
for (const name of Reflect.ownKeys(list)) delete list[name] // otherwise ownKeys would have to include them

module.exports = new Proxy(list, {
  get (_, name) {
    if (name === Symbol.for('berth')) return equip
    if (name === 'default' || name === 'module.exports') return known.has(name) ? proxy(name) : module.exports
    if (typeof name === 'symbol' || (asked.has(name) && !known.has(name))) return undefined
    return proxy(name)
  },
  has: (_, name) => known.has(name),
  ownKeys: () => [...known.keys()],
  getOwnPropertyDescriptor: (_, name) =>
    (known.has(name) ? { value: proxy(name), enumerable: true, configurable: true } : undefined),
  set: () => false,
  defineProperty: () => false
})
