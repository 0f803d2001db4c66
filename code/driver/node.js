// Runs cells of JavaScript and TypeScript and reports their results. code/cell/protocol.go defines the protocol.
// Requests come on file descriptor 3. The inspector of this same process evaluates the cells, because it supports what
// a console needs: await at the top level, and repeated declarations.
'use strict'
;(() => {
  const fs = require('fs')
  const vm = require('vm')
  const path = require('path')
  const util = require('util')
  const inspector = require('inspector')
  const Module = require('module')

  const longest = 1 << 20 // maximum characters of a text; the rest is cut
  // The arguments are the language, modules.js, and the parser acorn, packed.
  const [, language, modulesSource, acornPacked] = process.argv
  const typed = language === 'ts'
  const session = new inspector.Session()
  const here = Module.createRequire(path.join(process.cwd(), 'cell.js'))
  let mark, name, once, running

  // put writes one record, in pieces that are small enough for an atomic write.
  const put = (kind, data = '', fd = 1) => {
    const bytes = Buffer.from(data)
    for (let at = 0; at === 0 || at < bytes.length; at += 3900) {
      const piece = bytes.subarray(at, at + 3900)
      write(fd, Buffer.concat([Buffer.from(`\x1e${mark} ${kind} ${piece.length}\n`), piece]))
    }
  }

  // write writes all bytes. A full pipe gives EAGAIN if user code made it non-blocking; write then retries after 1 ms.
  const write = (fd, bytes) => {
    while (bytes.length > 0) {
      try {
        bytes = bytes.subarray(fs.writeSync(fd, bytes))
      } catch (e) {
        if (e.code !== 'EAGAIN') throw e
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1)
      }
    }
  }

  const cut = s => (s.length > longest ? `${s.slice(0, longest)}… [${s.length - longest} characters left out]` : s)

  const parts = (kind, list) => {
    put('r', kind)
    for (const [type, text] of list) {
      put('m', type)
      put('d', cut(text))
    }
    if (kind !== 'value') put('m') // of a value, the end of the cell is the end
  }

  const show = (value, kind) => {
    if (value === undefined) return
    const list = [['text/plain', util.inspect(value)]]
    if (value !== null && typeof value === 'object') {
      let json
      try {
        json = JSON.stringify(value)
      } catch {}
      if (json !== undefined && json.length <= longest) list.push(['application/json', json])
    }
    parts(kind, list)
  }

  // unloaded are the lines of import statements that failed, by their errors.
  const unloaded = new WeakMap()

  // stack returns an error's stack down to the cell, without the driver's frames below it.
  const stack = error => {
    const lines = String(error.stack).split('\n')
    const line = unloaded.get(error) // its import stands elsewhere than the statement that replaces it
    if (line !== undefined) {
      return [`${name}:${line}`, ...lines.filter(l => !/^\s+at .*(<cell-|\[eval|node:)/.test(l))].join('\n')
    }
    let last = -1
    lines.forEach((line, i) => {
      if (line.includes('<cell-')) last = i
    })
    const driver = (line, i) => /^\s+at /.test(line) &&
      (i > last ? last >= 0 || /node:|\[eval\]|evalmachine/.test(line) : /node:internal/.test(line))
    return lines.filter((line, i) => !driver(line, i)).join('\n')
  }

  const fail = error => {
    const is = util.types.isNativeError(error) || error instanceof Error
    put('e')
    const fields = is
      ? [['name', String(error.name)], ['message', String(error.message)], ['traceback', stack(error)]]
      : [['name', 'Uncaught'], ['message', util.inspect(error)], ['traceback', 'Uncaught ' + util.inspect(error)]]
    for (const [field, text] of fields) {
      put('m', field)
      put('d', cut(text))
    }
  }

  const post = (method, params) =>
    new Promise((resolve, reject) =>
      session.post(method, params, (e, r) => (e ? reject(new Error(e.message)) : resolve(r))))

  // real returns the value that an inspector's remote object stands for.
  const real = async remote => {
    if (remote.objectId) {
      await post('Runtime.callFunctionOn', {
        functionDeclaration: 'function () { globalThis[Symbol.for("berth")].value = this }',
        objectId: remote.objectId
      })
      await post('Runtime.releaseObject', { objectId: remote.objectId })
      const { value } = box
      box.value = undefined
      return remote.type === 'symbol' ? value.valueOf() : value
    }
    if (remote.unserializableValue === undefined) return remote.value
    return remote.type === 'bigint'
      ? BigInt(remote.unserializableValue.slice(0, -1))
      : Number(remote.unserializableValue)
  }

  // modules returns code whose module syntax is replaced; see modules.js. Code that the parser does not understand is
  // left as it is, since a newer node may understand it; invalid is the parser's error.
  let made, invalid
  const rewriter = () => (made ??= vm.runInThisContext(modulesSource, { filename: 'node:berth/modules' })(
    acorn(), 'globalThis[Symbol.for("berth")]'))
  const modules = code => {
    invalid = undefined
    if (!/\b(?:import|export)\b/.test(code)) return code
    try {
      return rewriter().modules(code)
    } catch (e) {
      if (e.pos === undefined && !(e instanceof RangeError)) throw e // RangeError: it is nested too deeply
      invalid = e
      return code
    }
  }
  const acorn = () => {
    const source = require('zlib').gunzipSync(Buffer.from(acornPacked, 'base64')).toString()
    const exports = {}
    vm.runInThisContext(`(function (exports, module) {${source}\n})`, { filename: 'node:berth/acorn' })(exports, {})
    return exports
  }

  // misplaced returns a syntax error with its place: the line, counted from 1, of the cell's text.
  const misplaced = (message, line, text) => {
    const lines = text.split('\n')
    const number = Math.min(line, lines.length) // at the end of the cell, node counts the line after it
    return Object.assign(new SyntaxError(message), {
      stack: `${name}:${number}\n${lines[number - 1]}\nSyntaxError: ${message}`
    })
  }

  // maps are the source maps of the cells in TypeScript, by name. mapped replaces the places in a stack by those in the
  // text of the cells.
  const maps = new Map()
  const place = (cell, line, column) => {
    const entry = maps.get(cell)?.findEntry(line - 1, column - 1)
    return entry?.originalLine === undefined ? [line, column] : [entry.originalLine + 1, entry.originalColumn + 1]
  }
  const mapped = text => text.replace(/(<cell-\d+>):(\d+):(\d+)/g, (_, cell, line, column) =>
    `${cell}:${place(cell, Number(line), Number(column)).join(':')}`)

  // javascript returns TypeScript code without its types, and keeps the source map if the places of the code changed. It
  // uses the compiler that the image has: esbuild, typescript, or node's own.
  let compile
  const javascript = code => {
    compile ??= compiler()
    const [out, map] = compile(code)
    if (map) maps.set(name, new Module.SourceMap(JSON.parse(map)))
    return out
  }
  const compiler = () => {
    const found = n => {
      for (const at of ['', '/usr/local/lib/node_modules/', '/usr/lib/node_modules/', '/usr/share/nodejs/']) {
        try {
          return here(at + n)
        } catch (e) {
          if (e.code !== 'MODULE_NOT_FOUND') throw e
        }
      }
    }
    // With a worker, esbuild keeps a child process, which an interrupt of a cell would end.
    const worker = process.env.ESBUILD_WORKER_THREADS
    process.env.ESBUILD_WORKER_THREADS = '0'
    const esbuild = found('esbuild')
    if (worker === undefined) delete process.env.ESBUILD_WORKER_THREADS
    else process.env.ESBUILD_WORKER_THREADS = worker
    if (esbuild) return withEsbuild(esbuild)
    const ts = found('typescript')
    if (ts?.transpileModule) return withTypescript(ts) // typescript 7 has no transpileModule
    if (Module.stripTypeScriptTypes) return withNode(Module.stripTypeScriptTypes)
    write(2, Buffer.from('berth: typescript is missing\n'))
    process.exit(127)
  }
  const withEsbuild = esbuild => code => {
    try {
      const out = esbuild.transformSync(code, {
        loader: 'ts',
        target: 'es2022',
        supported: { 'import-attributes': true, 'import-assertions': true },
        sourcefile: name,
        sourcemap: 'external',
        logLevel: 'silent',
        tsconfigRaw: { compilerOptions: { verbatimModuleSyntax: true } }
      })
      return [out.code, out.map]
    } catch (e) {
      const at = e.errors?.[0]
      throw at ? misplaced(at.text, at.location?.line ?? 1, code) : e.signal === 'SIGINT' ? interruption() : e
    }
  }
  // Node compiles since 22.13. Versions that only blank types out refuse enums, and keep all places.
  const withNode = strip => {
    const warn = process.emitWarning
    process.emitWarning = () => {} // that the function may change
    let mode = { mode: 'transform', sourceMap: true }
    try {
      strip('', mode)
    } catch {
      mode = { mode: 'strip' }
      strip('', mode)
    } finally {
      process.emitWarning = warn
    }
    return code => {
      try {
        const [, out, map] = /^([^]*?)(?:\/\/# sourceMappingURL=data:application\/json;base64,(\S+))?$/.exec(strip(code, mode))
        return [out, map && Buffer.from(map, 'base64').toString()]
      } catch (e) {
        const line = /^.*:(\d+)\n/.exec(e.stack)?.[1]
        throw e instanceof SyntaxError ? misplaced(e.message, Number(line ?? 1), code) : e
      }
    }
  }
  const withTypescript = ts => code => {
    const options = {
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.ESNext,
      isolatedModules: true,
      verbatimModuleSyntax: true,
      sourceMap: true
    }
    const out = ts.transpileModule(code, { compilerOptions: options, reportDiagnostics: true, fileName: 'cell.ts' })
    const bad = out.diagnostics?.find(d => d.category === ts.DiagnosticCategory.Error)
    if (bad) {
      const { line } = bad.file.getLineAndCharacterOfPosition(bad.start)
      throw misplaced(ts.flattenDiagnosticMessageText(bad.messageText, '\n'), line + 1, code)
    }
    return [out.outputText.replace(/^\/\/# sourceMappingURL=.*$/m, ''), out.sourceMapText]
  }

  // evaluate runs code as a cell. It returns what the inspector says of it, or throws if ended is rejected.
  const evaluate = (code, ended) => {
    let begun
    box.begin = () => {
      begun = post('Runtime.evaluate', {
        expression: `${code}\n//# sourceURL=${name}`,
        replMode: true,
        awaitPromise: true
      })
      begun.catch(() => {}) // an interrupted cell leaves its rejection unhandled
    }
    // breakOnSigint interrupts only a script of vm and what it calls, so the cell begins inside one.
    try {
      vm.runInThisContext('globalThis[Symbol.for("berth")].begin()', { breakOnSigint: !once })
    } catch (e) {
      throw e.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? interruption() : e
    }
    return Promise.race([begun, ended])
  }

  // declared returns the name that a cell cannot declare because an earlier one declared it in another way. Nothing of
  // such a cell has run: only then does the inspector name a script.
  const declared = ({ scriptId, exception }) => scriptId !== undefined &&
    /^SyntaxError: Identifier '(.+)' has already been declared$/m.exec(exception?.description)?.[1]

  // redeclared evaluates a cell, with its declarations changed to those of earlier cells where that is needed.
  const redeclared = async (code, ended) => {
    const first = await evaluate(code, ended)
    const kinds = new Map() // those that are left, by name
    for (let last = first; ;) {
      const again = last.exceptionDetails && declared(last.exceptionDetails)
      if (!again) return last
      if (!kinds.has(again)) kinds.set(again, ['let', 'var', 'const'])
      const kind = kinds.get(again).shift()
      if (!kind) return first
      try {
        const changed = rewriter().redeclare(code, again, kind)
        if (changed === undefined) continue
        code = changed
      } catch {
        return first // the name is declared twice in this cell, or the parser does not understand it
      }
      last = await evaluate(code, ended)
    }
  }

  const cell = async text => {
    const ended = new Promise((_, reject) => { running = reject })
    ended.catch(() => {})
    const code = modules(typed ? javascript(text) : text)
    const { result, exceptionDetails: thrown } = await redeclared(code, ended)
    if (!thrown) return real(result)
    const error = thrown.exception ? await real(thrown.exception) : new Error(thrown.text)
    if (thrown.scriptId === undefined || !(error instanceof SyntaxError)) throw error
    // The cell was not compiled. If the parser did not understand it either, its module syntax was not replaced, and
    // node complains of that.
    if (invalid?.pos === undefined) {
      throw misplaced(error.message, place(name, thrown.lineNumber + 1, thrown.columnNumber + 1)[0], text)
    }
    const lines = code.slice(0, invalid.pos).split('\n')
    const [line] = place(name, lines.length, lines.at(-1).length + 1)
    throw misplaced(invalid.message.replace(/ \(\d+:\d+\)$/, ''), line, text)
  }

  const interruption = () => Object.assign(new Error('the cell was interrupted'), {
    name: 'Interrupted',
    stack: 'Interrupted: the cell was interrupted'
  })

  const run = async (code, settings) => {
    let failed = false
    try {
      show(await within(settings, () => cell(code)), 'value')
    } catch (e) {
      failed = true
      fail(e)
    }
    running = undefined
    return failed
  }

  const requests = async function * () {
    let waiting = Buffer.alloc(0)
    for await (const more of new (require('net').Socket)({ fd: 3, readable: true, writable: false })) {
      waiting = Buffer.concat([waiting, more])
      for (;;) {
        const end = waiting.indexOf(10)
        if (end < 0) break
        const [nonce, number, mode, size, count = 0] = waiting.subarray(0, end).toString().split(' ')
        let at = end + 1
        const take = n => waiting.subarray(at, (at += n)).toString()
        const settings = {}
        for (let left = count; left > 0 && at < waiting.length; left--) {
          const line = waiting.indexOf(10, at)
          if (line < 0) break
          const [setting, length] = take(line - at).split(' ')
          at++
          settings[setting] = take(Number(length))
        }
        if (Object.keys(settings).length < count || waiting.length < at + Number(size)) break
        const code = take(Number(size))
        waiting = waiting.subarray(at)
        yield { nonce, number, mode, settings, code }
      }
    }
  }

  // within calls run with the settings of one cell: variables of the environment, and as "/" the working directory.
  const within = async (settings, run) => {
    const before = []
    try {
      for (const [key, value] of Object.entries(settings)) {
        if (key === '/') {
          const here = process.cwd()
          process.chdir(value)
          before.push(() => process.chdir(here))
        } else {
          const had = process.env[key]
          before.push(() => { if (had === undefined) delete process.env[key]; else process.env[key] = had })
          process.env[key] = value
        }
      }
      return await run()
    } finally {
      for (const undo of before.reverse()) {
        try {
          undo()
        } catch (e) { // the directory is gone
          write(2, Buffer.from(`${e.message}\n`))
        }
      }
    }
  }

  // program runs a single cell as node runs a file: the process ends when its event loop is empty.
  const program = async code => {
    const uncaught = e => {
      fail(e)
      process.exit(1)
    }
    process.on('uncaughtException', uncaught)
    if (await run(code, {})) process.exit(1)
  }

  // supply adds the session's tools to the global names, except where a name is taken.
  let toolbox
  const supply = async () => {
    try {
      toolbox ??= here('/.berth/tools/node/tools')
      await toolbox[Symbol.for('berth')](globalThis, toolbox)
    } catch {} // the container does not have the tools
  }

  // equip gives cells the names that the main file of a program has. It runs late, because node restores these names at
  // the end of this script.
  const equip = () => {
    const main = new Module('.')
    Object.defineProperty(here, 'main', { value: main })
    const given = {
      module: main,
      exports: main.exports,
      require: here,
      display: (...values) => values.forEach(value => show(value, 'display'))
    }
    for (const [key, value] of Object.entries(given))
      Object.defineProperty(globalThis, key, { value, writable: true, configurable: true })
  }

  const serve = async () => {
    for await (const r of requests()) {
      mark = r.nonce
      name = `<cell-${r.number}>`
      once = r.mode === 'once'
      if (r.number === '1') equip()
      if (process.env.BERTH_TOOLS) await supply()
      if (once) return program(r.code)
      if (r.number === '1') {
        process.on('SIGINT', () => running?.(interruption()))
        process.on('uncaughtException', e =>
          write(2, Buffer.from(`Uncaught ${e?.stack ? stack(e) : util.inspect(e)}\n`)))
      }
      await run(r.code, r.settings)
      put('z', '', 2)
      put('z')
    }
    process.exit(0)
  }

  // box is what the code that replaces module syntax calls.
  const box = {
    import: (name, options) => name === 'tools' && toolbox
      ? toolbox
      : import(/^\.{0,2}\//.test(name) ? path.resolve(name) : name, options),

    // load imports a module and returns what an import statement declares: the cell's names, by those of the module.
    // line is where the statement stands.
    load: async (source, wanted, attributes, line) => {
      const own = {}
      try {
        const options = { with: attributes, assert: attributes } // node 18 reads assert
        const found = await (Object.keys(attributes).length ? box.import(source, options) : box.import(source))
        for (const [local, exported] of Object.entries(wanted)) {
          own[local] = exported === '*' ? found : found[exported] ?? found.default?.[exported]
          if (own[local] === undefined && !(exported in found) && !typed) { // a type is not there
            throw new SyntaxError(`The requested module '${source}' does not provide an export named '${exported}'`)
          }
        }
      } catch (e) {
        if (util.types.isNativeError(e)) unloaded.set(e, place(name, line, 1)[0])
        throw e
      }
      return own
    },
    get meta () {
      const filename = path.resolve('cell.js')
      const url = require('url').pathToFileURL(filename).href
      return { url, filename, dirname: process.cwd(), resolve: name => here.resolve(name) }
    }
  }
  Object.defineProperty(globalThis, Symbol.for('berth'), { value: box })
  if (typed) {
    Error.prepareStackTrace = (error, frames) => {
      let head
      try {
        head = String(error)
      } catch {
        head = 'Error'
      }
      return mapped([head, ...frames.map(f => `    at ${f}`)].join('\n'))
    }
  }
  session.connect()
  process.argv.splice(1)
  process.title = 'node' // ps would list this file and the parser as arguments
  serve()
})()
