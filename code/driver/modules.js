// Rewrites the module syntax of a cell, which only a module may have, to what a script of a console may have. node.js
// evaluates this file when the first cell with the word import or export comes, and calls it with the parser acorn and
// with an expression for the object that has import, load and meta.
//
//   import a, { b as c } from 'm'   const {a, c} = await box.load(...), before the first statement of the cell
//   import(x), import.meta          box.import(x), box.meta
//   export const a = 1              const a = 1
//   export default f()              ;(f());
//   export { a }, export * from     nothing, but a module that is named is loaded
//
// The lines of a cell stay the same, and so do the columns of statements that are not rewritten.
//
// It also rewrites declarations: the inspector takes a name again only if it is declared as in the earlier cell.
'use strict'
;(acorn, box) => {
  const options = { ecmaVersion: 'latest', allowImportExportEverywhere: true, allowAwaitOutsideFunction: true }

  // Node 18 takes assert where later versions take with.
  const Parser = acorn.Parser.extend(Base => class extends Base {
    parseWithClause () {
      if (this.isContextual('assert') && !this.canInsertSemicolon()) this.type = acorn.tokTypes._with
      return super.parseWithClause()
    }
  })

  const walk = (node, visit) => {
    if (typeof node?.type === 'string') visit(node)
    for (const part of Object.values(node)) if (part !== null && typeof part === 'object') walk(part, visit)
  }

  const text = node => (node.type === 'Literal' ? node.value : node.name)

  // load returns the statement that loads a module and declares the names that a statement imports from it.
  const load = (code, { source, specifiers = [], attributes = [], start }, names) => {
    const wanted = {}
    for (const s of specifiers) {
      if (s.type === 'ImportDefaultSpecifier') wanted[s.local.name] = 'default'
      else if (s.type === 'ImportNamespaceSpecifier') wanted[s.local.name] = '*'
      else if (s.type === 'ImportSpecifier') wanted[s.local.name] = text(s.imported)
    }
    const given = Object.fromEntries(attributes.map(a => [text(a.key), a.value.value]))
    const { line } = acorn.getLineInfo(code, start)
    const call = `await ${box}.load(${[source.value, wanted, given, line].map(v => JSON.stringify(v)).join(', ')});`
    const declared = Object.keys(wanted)
    return declared.length ? `const { ${declared.join(', ')} } = ${call}` : `void ${call}`
  }

  // edited returns code with edits: lists of start, end, and what to put there.
  const edited = (code, edits) => {
    edits.sort((a, b) => a[0] - b[0] || a[1] - b[1])
    let out = ''
    let at = 0
    for (const [start, end, instead] of edits) {
      out += code.slice(at, start) + instead
      at = end
    }
    return out + code.slice(at)
  }

  // modules returns a cell whose module syntax is replaced.
  const modules = code => {
    const program = Parser.parse(code, options)
    const edits = []
    const loads = []
    // blank replaces code by a semicolon and spaces.
    const blank = (start, end) => {
      edits.push([start, end, ';' + code.slice(start + 1, end).replace(/[^\r\n\u2028\u2029]/g, ' ')])
    }

    const exportDefault = node => {
      const { declaration: made } = node
      if (/^(Function|Class)Declaration$/.test(made.type) && made.id) return blank(node.start, made.start)
      const tokens = acorn.tokenizer(code.slice(node.start), options)
      tokens.getToken()
      const last = node.start + tokens.getToken().end - 1 // of the word default
      blank(node.start, last)
      edits.push([last, last + 1, '('])
      const end = code[node.end - 1] === ';' ? node.end - 1 : node.end
      edits.push([end, end, ');'])
    }

    const statements = {
      ImportDeclaration: node => {
        loads.push(load(code, node))
        blank(node.start, node.end)
      },
      ExportNamedDeclaration: node => {
        if (node.source) loads.push(load(code, node))
        blank(node.start, node.declaration ? node.declaration.start : node.end)
      },
      ExportAllDeclaration: node => {
        loads.push(load(code, node))
        blank(node.start, node.end)
      },
      ExportDefaultDeclaration: exportDefault
    }

    walk(program, node => {
      if (node.type === 'ImportExpression') edits.push([node.start, node.start + 6, box + '.import'])
      if (node.type === 'MetaProperty' && node.meta.name === 'import') edits.push([node.start, node.end, box + '.meta'])
      if (!statements[node.type]) return
      if (!program.body.includes(node)) {
        const error = new SyntaxError("'import' and 'export' may only appear at the top level")
        throw Object.assign(error, { pos: node.start })
      }
      statements[node.type](node)
    })

    if (loads.length > 0) {
      const { start } = program.body.find(node => node.directive === undefined)
      edits.push([start, start, loads.join(' ') + ' '])
    }
    return edited(code, edits)
  }

  const names = pattern => {
    switch (pattern?.type) {
      case 'Identifier': return [pattern.name]
      case 'ObjectPattern': return pattern.properties.flatMap(p => names(p.value ?? p.argument))
      case 'ArrayPattern': return pattern.elements.flatMap(names)
      case 'AssignmentPattern': return names(pattern.left)
      case 'RestElement': return names(pattern.argument)
    }
    return []
  }

  // assigns reports whether a node gives a name a new value.
  const assigns = (node, name) => {
    switch (node.type) {
      case 'AssignmentExpression': case 'ForInStatement': case 'ForOfStatement': return names(node.left).includes(name)
      case 'UpdateExpression': return names(node.argument).includes(name)
    }
    return false
  }

  // redeclare returns a cell that declares a name with let, var or const, or undefined if that would not do.
  const redeclare = (code, name, kind) => {
    const program = Parser.parse(code, options)
    const edits = []
    let fits = true
    const declared = ({ declarations }) => declarations.some(d => names(d.id).includes(name))
    for (const node of program.body) {
      if (/^(Function|Class)Declaration$/.test(node.type) && node.id.name === name) {
        edits.push([node.start, node.start, `${kind} ${name} = `], [node.end, node.end, ';'])
      } else if (node.type === 'VariableDeclaration' && declared(node)) {
        // Each of its names gets a statement, since another may need another kind.
        let [start, end] = [node.start, node.start + node.kind.length]
        for (const d of node.declarations) {
          const own = names(d.id).includes(name)
          if (own && kind === 'const' && !d.init) fits = false
          edits.push([start, end, (start === node.start ? '' : '; ') + (own ? kind : node.kind)])
          const tokens = acorn.tokenizer(code.slice(d.end, node.end), options)
          for (const token of tokens) {
            if (token.type !== acorn.tokTypes.comma) continue
            ;[start, end] = [d.end + token.start, d.end + token.end]
            break
          }
        }
      } else {
        visit(node, inner => { // var, in a block or a loop
          if (inner.type === 'VariableDeclaration' && inner.kind === 'var' && declared(inner)) {
            edits.push([inner.start, inner.start + 3, kind === 'var' ? 'var' : 'let'])
          }
        })
      }
    }
    if (kind === 'const') walk(program, node => { fits &&= !assigns(node, name) })
    return fits && edits.length > 0 ? edited(code, edits) : undefined
  }

  // visit is walk without the functions and classes in a node.
  const visit = (node, see) => {
    if (/Function|Class/.test(node.type)) return
    if (typeof node.type === 'string') see(node)
    for (const part of Object.values(node)) if (part !== null && typeof part === 'object') visit(part, see)
  }

  return { modules, redeclare }
}
