// The tools that this session may call, as functions: await tools.fetch(u), await tools['fetch'](u); await tools() lists them. Nothing here is secret and nothing is decided
// here: the daemon has the list, and judges each call. Calls that are made in one go are one request.
'use strict'
const http = require('http')
const { randomUUID } = require('crypto')

const BATCH = 64 // calls of one request, which is what the daemon takes
const REQUESTS = 3 // at once, so that their calls are fewer than the 256 that the daemon has under way; more wait
const LARGEST = 1 << 20 // bytes of an input, which is what the daemon takes
const FULL = 8 << 20 // bytes of the calls of one request: the daemon takes 16 MiB, but has 32 MiB under way, and these are to be room for REQUESTS
const PATIENCE = 300e3 // ms for which a daemon that does not answer is tried again, since it last did
const PAUSE = 1000 // ms of the longest pause before that

// Errors have the names that they have in Python, since the daemon speaks of those.
const errors = {}
for (const name of ['PermissionError', 'NameError', 'ValueError', 'TimeoutError', 'RuntimeError']) {
  errors[name] = { [name]: class extends Error {
    get name () { return name }
  } }[name]
}

const statuses = { 400: 'ValueError', 401: 'PermissionError', 403: 'PermissionError', 413: 'ValueError' }

// Broken says that a connection ended before everything was answered.
class Broken extends Error {}

// refusal is the error for a response that is none of calls.
const refusal = (status, body) => {
  let failure
  try {
    failure = JSON.parse(body).error
  } catch {}
  const said = failure?.message ?? `the daemon answered with status ${status}`
  if (status === 429 || status === 503) return new Broken(said) // it is busy, or on its way out or in
  return new (errors[failure?.type] ?? errors[statuses[status]] ?? errors.RuntimeError)(said)
}

// ask makes a request and gives the lines of its answer to each as they come.
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

// given is an input as JSON. One that is too large is refused here, in the daemon's words: no request has room for it.
const given = (name, input) => {
  let text
  try {
    text = JSON.stringify(input, (key, value) => (value instanceof Set ? [...value] : value instanceof Map ? Object.fromEntries(value) : value))
    if (text === undefined) throw new TypeError('they say that they are nothing')
  } catch (e) {
    throw new errors.ValueError(`tool ${name}: the arguments are not JSON: ${e.message}`)
  }
  if (Buffer.byteLength(text) > LARGEST) throw new errors.ValueError(`an input has at most ${LARGEST} bytes; put what is larger into a file`)
  return text
}

let collected = []

// call has the daemon call a tool, with all that are called before the loop would wait.
const call = (name, input) => new Promise((resolve, reject) => {
  const id = randomUUID()
  const text = `{"id":"${id}","tool":${JSON.stringify(name)},"input":${given(name, input)}}`
  if (collected.push({ id, text, size: Buffer.byteLength(text), resolve, reject }) === 1) setImmediate(flush)
})

// flush cuts what was collected into requests that the daemon takes.
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

// next makes requests of what is queued, as many as there may be.
const next = () => {
  for (; underWay < REQUESTS && queue.length > 0; underWay++) {
    send(queue.shift()).finally(() => {
      underWay--
      next()
    })
  }
}

const lost = e => new errors.RuntimeError(`the tools cannot be reached: ${e.message}`)

// retries waits before a request is made again, unless it was tried for long enough.
const retries = () => {
  let since, pause
  return {
    answered: () => { since = undefined },
    after: (began, e) => {
      const now = Date.now()
      if (since === undefined || now - began > PAUSE) [since, pause] = [now, 25] // it waited for its answer, perhaps for a day: whatever broke it is new
      if (now - since > PATIENCE) throw lost(e)
      pause = Math.min(2 * pause, PAUSE)
      return new Promise(resolve => setTimeout(resolve, pause))
    }
  }
}

// send makes one request, again with the same ids where the connection breaks: the daemon knows them.
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

let known = new Map() // what the daemon says of each tool, by name
const made = new Map() // a function for each name

// refresh asks the daemon for the list, once for all who want it at the same time.
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

// find is what the daemon says of a tool, by its name or as an identifier has it.
const find = name => {
  const same = [...known.keys()].filter(n => identifier(n) === name)
  return known.get(name) ?? (same.length === 1 ? known.get(same[0]) : undefined)
}

const isObject = value => value !== null && typeof value === 'object' && !Array.isArray(value) && !(value instanceof Map)

// input is what a call means: positions are the schema's properties in their order, and one object may be all of it, or what comes last the rest.
const input = (tool, args) => {
  const properties = tool.input_schema?.properties ?? {}
  const names = Object.keys(properties)
  const required = tool.input_schema?.required ?? []
  const fits = value => isObject(value) && Object.keys(value).every(n => names.includes(n))
  const has = (value, from) => required.every(n => n in value || names.indexOf(n) < from)
  const takes = i => [undefined, 'object'].includes(properties[names[i]]?.type)
  const last = args.length - 1
  if (last === 0 && isObject(args[0]) && (names.length === 0 || (fits(args[0]) && has(args[0], 0)) || !takes(0))) return args[0]
  const rest = last > 0 && fits(args[last]) && (last >= names.length || !takes(last)) ? args[last] : undefined
  const values = rest ? args.slice(0, last) : args
  if (values.length > names.length) throw new TypeError(`${tool.name}() takes ${names.length} arguments, but ${values.length} were given`)
  const out = { ...rest }
  values.forEach((value, i) => { if (value !== undefined) out[names[i]] = value })
  return out
}

// proxy is the function for a name, whoever may call it: the daemon says no to what is not on its list.
const proxy = name => {
  if (made.has(name)) return made.get(name)
  const run = async (...args) => {
    if (!find(name)) await refresh()
    const tool = find(name)
    return tool ? call(tool.name, input(tool, args)) : call(name, isObject(args[0]) ? args[0] : {})
  }
  Object.defineProperty(run, 'name', { value: name })
  Object.defineProperty(run, 'toString', { value: () => `async function ${name}(${Object.keys(find(name)?.input_schema?.properties ?? {}).join(', ')}) { /* ${find(name)?.description ?? 'a tool'} */ }` })
  made.set(name, run)
  return run
}

// equip puts the tools into a namespace where nothing has their names, and takes out those that are gone. fetch alone is put in the place of what
// Node has by that name, as who lists a tool called so means it.
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

// What nobody means by a tool's name: who awaits or inspects the module asks for them.
const asked = new Set(['then', 'default', 'length', 'name', 'apply', 'call', 'bind', 'toString', 'constructor', 'toJSON', 'prototype', '__esModule', 'module.exports'])

// list is what the module itself is as a function: what the daemon says of the tools.
const list = async () => {
  await refresh()
  return [...known.values()]
}
for (const name of Reflect.ownKeys(list)) delete list[name] // or they would have to be among the tools

module.exports = new Proxy(list, {
  get (_, name) {
    if (name === Symbol.for('berth')) return equip
    if (name === 'default' || name === 'module.exports') return known.has(name) ? proxy(name) : module.exports
    if (typeof name === 'symbol' || (asked.has(name) && !known.has(name))) return undefined
    return proxy(name)
  },
  has: (_, name) => known.has(name),
  ownKeys: () => [...known.keys()],
  getOwnPropertyDescriptor: (_, name) => (known.has(name) ? { value: proxy(name), enumerable: true, configurable: true } : undefined),
  set: () => false,
  defineProperty: () => false
})
