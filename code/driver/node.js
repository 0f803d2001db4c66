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
  const typed = process.argv[1] === 'ts'
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

  // stack returns an error's stack down to the cell, without the driver's frames below it.
  const stack = error => {
    const text = String(error.stack)
    const lines = text.split('\n')
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

  // statement first matches comments and strings, so it finds no import inside one. Then it matches import statements
  // at the beginning of a line, import calls, and the export keyword, which imports drops.
  const texts = String.raw`\/\*[\s\S]*?\*\/|\/\/.*|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|` + '`(?:\\\\.|[^`\\\\])*`'
  const from = String.raw`(['"])([^'"\n]+)`
  const statement = new RegExp(
    `${texts}|^[ \\t]*import\\s+(?:([\\w$*\\s,{}]+?)\\s*from\\s*)?${from}\\2[ \\t]*;?|(?<![\\w.$])import\\s*\\(|` +
    '^export\\s+(?:default\\s+)?(?=(?:const|let|var|function|class|async)\\b)', 'gm')

  // imports replaces import statements, which only a module may have, by awaited import calls, which a cell may have.
  const imports = code => {
    if (!/import|export/.test(code)) return code
    return code.replace(statement, (all, what, _, module) => {
      if (/^export\s/.test(all)) return ''
      if (module === undefined) return /^import\s*\(/.test(all) ? 'globalThis[Symbol.for("berth")].import(' : all
      const load = `await globalThis[Symbol.for("berth")].import(${JSON.stringify(module)});`
      if (!what) return load
      const braces = /\{([^}]*)\}/.exec(what)
      const out = []
      for (const part of what.replace(/\{[^}]*\}/, '').split(',').map(s => s.trim()).filter(Boolean)) {
        const all = /^\*\s*as\s+(\S+)$/.exec(part)
        out.push(all ? `const ${all[1]} = ${load}` : `const { default: ${part} } = ${load}`)
      }
      if (braces) out.push(`const {${braces[1].replace(/\s+as\s+/g, ': ')}} = ${load}`)
      return out.join(' ') + '\n'.repeat(all.split('\n').length - 1)
    })
  }

  // javascript returns TypeScript code without its types. It uses the compiler that the image has: esbuild or
  // typescript.
  let compile
  const javascript = code => {
    compile ??= compiler()
    return compile(code)
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
    const esbuild = found('esbuild')
    if (esbuild) {
      return code => {
        try {
          return esbuild.transformSync(code, {
            loader: 'ts',
            target: 'es2022',
            sourcefile: name,
            logLevel: 'silent',
            tsconfigRaw: { compilerOptions: { verbatimModuleSyntax: true } }
          }).code
        } catch (e) {
          const at = e.errors?.[0]
          throw at
            ? Object.assign(new SyntaxError(at.text), {
              stack: `${name}:${at.location?.line}\n${at.location?.lineText}\nSyntaxError: ${at.text}`
            })
            : e
        }
      }
    }
    const ts = found('typescript')
    if (!ts?.transpileModule) { // typescript 7 has no transpileModule
      write(2, Buffer.from('berth: typescript is missing\n'))
      process.exit(127)
    }
    return code => {
      const options = {
        target: ts.ScriptTarget.ES2022,
        module: ts.ModuleKind.ESNext,
        isolatedModules: true,
        verbatimModuleSyntax: true
      }
      const out = ts.transpileModule(code, { compilerOptions: options, reportDiagnostics: true, fileName: 'cell.ts' })
      const bad = out.diagnostics?.find(d => d.category === ts.DiagnosticCategory.Error)
      if (bad) {
        const { line } = bad.file.getLineAndCharacterOfPosition(bad.start)
        const text = ts.flattenDiagnosticMessageText(bad.messageText, '\n')
        throw Object.assign(new SyntaxError(text), {
          stack: `${name}:${line + 1}\n${code.split('\n')[line]}\nSyntaxError: ${text}`
        })
      }
      return out.outputText.replace(/^export \{\};?$/m, '')
    }
  }

  const cell = async code => {
    code = imports(typed ? javascript(code) : code)
    const ended = new Promise((_, reject) => { running = reject })
    ended.catch(() => {})
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
    const { result, exceptionDetails: thrown } = await Promise.race([begun, ended])
    if (!thrown) return real(result)
    const error = thrown.exception ? await real(thrown.exception) : new Error(thrown.text)
    if (util.types.isNativeError(error) && !String(error.stack).includes('<cell-')) {
      error.stack = `${name}:${thrown.lineNumber + 1}\n${code.split('\n')[thrown.lineNumber] ?? ''}\n` +
        `${error.name}: ${error.message}`
    }
    throw error
  }

  const interruption = () => Object.assign(new Error('the cell was interrupted'), {
    name: 'Interrupted',
    stack: 'Interrupted: the cell was interrupted'
  })

  const run = async code => {
    let failed = false
    try {
      show(await cell(code), 'value')
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
        const [nonce, number, mode, size] = waiting.subarray(0, end).toString().split(' ')
        if (waiting.length < end + 1 + Number(size)) break
        const code = waiting.subarray(end + 1, end + 1 + Number(size)).toString()
        waiting = waiting.subarray(end + 1 + Number(size))
        yield { nonce, number, mode, code }
      }
    }
  }

  const take = r => {
    mark = r.nonce
    name = `<cell-${r.number}>`
    once = r.mode === 'once'
  }

  // program runs a single cell as node runs a file: the process ends when its event loop is empty.
  const program = async code => {
    const uncaught = e => {
      fail(e)
      process.exit(1)
    }
    process.on('uncaughtException', uncaught)
    if (await run(code)) process.exit(1)
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
      await run(r.code)
      put('z', '', 2)
      put('z')
    }
    process.exit(0)
  }

  const box = {
    import: name => name === 'tools' && toolbox ? toolbox : import(/^\.{0,2}\//.test(name) ? path.resolve(name) : name)
  }
  Object.defineProperty(globalThis, Symbol.for('berth'), { value: box })
  session.connect()
  process.argv.splice(1)
  serve()
})()
