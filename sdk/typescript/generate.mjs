// Writes src/types.ts from the daemon's OpenAPI document: an interface for each schema, with names in camelCase.
//
//     node generate.mjs openapi.json >src/types.ts
import { readFileSync } from 'node:fs'

// Schemas that no call of the SDK takes or returns.
const unused = new Set(['AuditEgress', 'AuditEntry', 'AuditExec', 'AuditHead', 'ClientMessage',
  'DaemonMessage', 'Use', 'ToolUseOnce', 'Result', 'Failure', 'Script',
  'Execution', 'OneShot', 'Message', 'Rotation', 'ChangeTool', 'CreateTool', 'Tool', 'ToolConfiguration', 'ToolField',
  'ToolPage', 'ToolRun', 'ToolRunError', 'ToolRunPage', 'ToolRunRequest', 'ToolVariable'])
// Names that mean something else in JavaScript,
// or in the SDK.
const renamed = { CodeContext: 'ContextInfo', Error: 'ErrorInfo', Event: 'ExecEvent', Image: 'ImageInfo' }
const width = 120

const { components: { schemas } } = JSON.parse(readFileSync(process.argv[2], 'utf8'))
const opaque = new Map() // names whose values keep their keys, or do not
const camel = name => name.replace(/_+([a-z0-9])/g, (_, c) => c.toUpperCase())
const typeName = name => renamed[name] ?? name

function reference (ref) {
  const name = ref.split('/').pop()
  if (unused.has(name)) throw new Error(`${name} is used and must not be in the list of unused schemas`)
  return typeName(name)
}

// typeOf returns the TypeScript type of a schema.
function typeOf (schema) {
  if (schema.$ref) return reference(schema.$ref)
  if (schema.allOf?.length === 1 && schema.allOf[0].$ref) return reference(schema.allOf[0].$ref)
  const choices = schema.oneOf ?? schema.anyOf
  if (choices && !schema.properties) return [...new Set(choices.flatMap(s => typeOf(s).split(' | ')))].join(' | ')
  if (schema.enum) return schema.enum.filter(v => v !== '').map(v => `'${v}'`).join(' | ') || 'string'
  if (schema.const !== undefined) return JSON.stringify(schema.const).replaceAll('"', "'")
  if (Array.isArray(schema.type)) return schema.type.map(type => typeOf({ ...schema, type })).join(' | ')
  switch (schema.type) {
    case 'string': return 'string'
    case 'integer': case 'number': return 'number'
    case 'boolean': return 'boolean'
    case 'null': return 'null'
    case 'array': {
      const item = typeOf(schema.items ?? {})
      return item.includes(' ') ? `Array<${item}>` : `${item}[]`
    }
    case 'object':
      if (schema.additionalProperties) return `Record<string, ${typeOf(schema.additionalProperties)}>`
      if (schema.properties) return `{ ${members(schema, '').join('; ')} }`
  }
  return 'unknown'
}

function members (schema) {
  return Object.entries(schema.properties).map(([name, of]) =>
    `${camel(name)}${schema.required?.includes(name) ? '' : '?'}: ${typeOf(of)}`)
}

// range says what the schema of a number or a text allows, unless the description says it.
function range (schema) {
  const text = schema.description ?? ''
  const { minimum: least, maximum: most } = schema
  if (most === undefined || text.includes(String(most)) || /\d (to|up)/.test(text)) return ''
  return least === undefined ? `At most ${most}.` : `${least} to ${most}.`
}

const sentence = text => text === '' || /[.!?:]$/.test(text) ? text : text + '.'

// comment returns lines of a doc comment.
function comment (text, indent) {
  text = text.replace(/\s+/g, ' ').replaceAll('*/', '* /').trim()
  if (text === '') return []
  if (indent.length + text.length + 7 <= width) return [`${indent}/** ${text} */`]
  const lines = []
  let line = ''
  for (const word of text.split(' ')) {
    if (indent.length + 3 + line.length + 1 + word.length > width) {
      lines.push(line)
      line = ''
    }
    line += (line && ' ') + word
  }
  return [`${indent}/**`, ...[...lines, line].map(l => `${indent} * ${l}`), `${indent} */`]
}

// note remembers whether the value of a name is somebody's own data, whose keys are not ours to rename.
function note (name, schema) {
  const item = schema.items ?? schema
  const own = Boolean(item.additionalProperties) || typeOf(item) === 'unknown'
  if (['string', 'number', 'boolean'].includes(typeOf(item))) return
  if (opaque.has(name) && opaque.get(name) !== own)
    throw new Error(`${name} is data of its own in one schema and an object of the API in another`)
  if (own || !opaque.has(name)) opaque.set(name, own)
}

const out = []
for (const [name, schema] of Object.entries(schemas).sort(([a], [b]) => a < b ? -1 : 1)) {
  if (unused.has(name)) continue
  out.push('', ...comment(schema.description ?? '', ''))
  if (!schema.properties) {
    out.push(`export type ${typeName(name)} = ${typeOf(schema)}`)
    continue
  }
  out.push(`export interface ${typeName(name)} {`)
  for (const [field, of] of Object.entries(schema.properties)) {
    note(field, of)
    const text = [sentence(of.description ?? ''), range(of)].filter(Boolean).join(' ')
      .replace(/\b[a-z]+(_[a-z0-9]+)+\b/g, w => schema.properties[w] || known(w) ? camel(w) : w)
    const line = `  ${camel(field)}${schema.required?.includes(field) ? '' : '?'}: ${typeOf(of)}`
    out.push(...comment(text, '  '), ...wrap(line))
  }
  out.push('}')
}

// known reports whether a word is a field of some schema.
function known (word) {
  return Object.values(schemas).some(s => s.properties?.[word])
}

// wrap breaks a union that is too long for one line.
function wrap (line) {
  if (line.length <= width) return [line]
  const [head, ...rest] = line.split(' | ')
  const lines = [head]
  for (const part of rest) {
    const last = lines.length - 1
    if ((lines[last] + ' | ' + part).length <= width) lines[last] += ' | ' + part
    else lines.push('    | ' + part)
  }
  return lines
}

const names = [...opaque].filter(([, own]) => own).map(([name]) => name).sort()
const list = comment(names.map(n => `'${n}',`).join(' '), '').filter(l => !/\*\*?\/?$/.test(l))
console.log(`// Made from the daemon's OpenAPI document by generate.mjs; do not edit. Times are text in RFC 3339, UTC.

/** Names of the API whose values are data of callers: their keys stay as they are. */
export const opaque: ReadonlySet<string> = new Set([
${list.map(l => '  ' + l.replace(/^ ?\/?\*+ ?/, '').replace(/ \*\/$/, '')).join('\n').replace(/,$/, '')}
])
${out.join('\n')}`)
