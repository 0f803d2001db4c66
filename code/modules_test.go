package code_test

import (
	"context"
	"strings"
	"testing"

	"berth/code"
	"berth/proto"
	"berth/session"
	"berth/test/sessiontest"
)

// moduleFiles are what the programs below import, in their working directory.
const moduleFiles = `cat >esm.mjs <<'end'
export default 'the default'
export const a = 1, b = 2
export { b as 'a name' }
export let count = 0
end
echo 'module.exports = { c: 3 }' >cjs.cjs
echo '{"d": 4}' >data.json
echo 'console.log("loaded")' >effect.mjs
echo 'throw new Error("broken")' >broken.mjs`

// modulePrograms have module syntax, or words that look like it. Each has the expected value.
var modulePrograms = map[string]want{
	"import e, { a } from './esm.mjs'; import * as all from './esm.mjs'; [e, a, all.b]": {
		results: []string{"[ 'the default', 1, 2 ]"}},
	"import e, * as all from './esm.mjs'\n[e, all.a]":                                 {results: []string{"[ 'the default', 1 ]"}},
	"import{a as x,b}from'./esm.mjs';x+b":                                             {results: []string{"3"}},
	"import { default as d, 'a name' as n, } from \"./esm.mjs\";\n[d, n]":             {results: []string{"[ 'the default', 2 ]"}},
	"import {\n  a, // the first\n  b /* from 'other' */\n}\nfrom './esm.mjs'\na + b": {results: []string{"3"}},
	"/* a comment */ import { a } from './esm.mjs' // another\na":                     {results: []string{"1"}},
	"// import x from 'nosuch'\nimport { a } from './esm.mjs'\na":                     {results: []string{"1"}},
	"'use strict'\nimport { a } from './esm.mjs'\n;[a, (function () { return this })()]": {
		results: []string{"[ 1, undefined ]"}},
	"#!/usr/bin/env node\n'use strict'; import { a } from './esm.mjs'\na":   {results: []string{"1"}},
	"const before = a + 1\nimport { a } from './esm.mjs'\nbefore":           {results: []string{"2"}},
	"const x = 5\nimport { a } from './esm.mjs'\n(function () {})()\nx + a": {results: []string{"6"}},
	"import './effect.mjs'":                                          {stdout: "loaded\n"},
	"import{}from'./effect.mjs'":                                     {stdout: "loaded\n"},
	"import data from './data.json' with { type: 'json' }\ndata.d":   {results: []string{"4"}},
	"import data from './data.json' assert { type: 'json' }\ndata.d": {results: []string{"4"}},
	"(await import('./data.json', { with: { type: 'json' }, assert: { type: 'json' } })).default.d": {
		results: []string{"4"}},
	"import { a } from './esm.mjs'\nassert = 1\nassert + a":                 {results: []string{"2"}},
	"import { c } from './cjs.cjs'\nimport all from './cjs.cjs'\nc + all.c": {results: []string{"6"}},
	"import fs from 'fs', { readFileSync } from 'fs'":                       {err: "SyntaxError", name: "SyntaxError"},
	"import process from 'process'; import { Buffer } from 'node:buffer'; typeof process.cwd + Buffer.from('a')": {
		results: []string{"'functiona'"}},

	"const { a } = await import('./esm.mjs'); a":                                   {results: []string{"1"}},
	"await Promise.all(['a', 'b'].map(async n => (await import('./esm.mjs'))[n]))": {results: []string{"[ 1, 2 ]"}},
	"import /* x */ ('./esm.mjs').then(m => m.b)":                                  {results: []string{"2"}},
	"`${(await import('./esm.mjs')).a} import x from 'y' ${`${1 + 1}`}`":           {results: []string{`"1 import x from 'y' 2"`}},
	"for await (const m of [import('./esm.mjs')]) console.log(m.a)":                {stdout: "1\n"},
	"typeof import.meta.url + import.meta.url.startsWith('file:///')":              {results: []string{"'stringtrue'"}},

	"export const x = 1; export let y = 2\nexport function f() { return x + y }\nexport class C {}\nf()": {
		results: []string{"3"}},
	"export async function f() { return 4 }\nawait f()":                  {results: []string{"4"}},
	"const a = 1\nexport { a }\na":                                       {results: []string{"1"}},
	"const a = 1; export { a as default, a as 'x y' }; export {}; a + 1": {results: []string{"2"}},
	"export default 6 * 7":                                               {results: []string{"42"}},
	"const a = f => f\nexport default (1, 2)":                            {results: []string{"2"}},
	"export default { a: 1 };":                                           {results: []string{"{ a: 1 }"}},
	"export default function f() { return 5 }\nf()":                      {results: []string{"5"}},
	"export default function () { return 5 }":                            {results: []string{"[Function (anonymous)]"}},
	"export default class { x = ';' }":                                   {results: []string{"[class (anonymous)]"}},
	"export default class C { x = 1 }\nnew C().x":                        {results: []string{"1"}},
	"export default /* why */ async () => 5":                             {results: []string{"[AsyncFunction (anonymous)]"}},
	"export { a } from './esm.mjs'; export * from './effect.mjs'; export * as all from './esm.mjs'; 1": {
		results: []string{"1"}, stdout: "loaded\n"},
	"export { default } from './esm.mjs'\nexport const later = 2\nlater": {results: []string{"2"}},

	"const o = { import(x) { return x + 1 }, export: 2 }; o.import(o.export)":          {results: []string{"3"}},
	"class C { import() { return 1 } static export = 2 }\nnew C().import() + C.export": {results: []string{"3"}},
	"const o = { import: 1 }; o\n.import + o?.import":                                  {results: []string{"2"}},
	"'import a from \"b\"' + \"export default\"":                                       {results: []string{"'import a from \"b\"export default'"}},
	"`\nimport a from 'b'\nexport const c = 1\n`.length":                               {results: []string{"38"}},
	"/import a from 'b'/.test(\"import a from 'b'\")":                                  {results: []string{"true"}},
	"const a = 4, g = 2; a / 2 / g; /export [/]/.source":                               {results: []string{"'export [/]'"}},
	"// export default\n/* import x */ 1":                                              {results: []string{"1"}},
	"label: for (;;) { break label } /import/.flags":                                   {results: []string{"''"}},
	"with ({ x: 1 }) console.log('import', x)":                                         {stdout: "import 1\n"},
	"var r = 010; 'import' + r":                                                        {results: []string{"'import8'"}},
	"JSON.parse('{\"import\": 1}')":                                                    {results: []string{"{ import: 1 }"}},

	"\nimport x from './nosuch.mjs'": {err: "<cell-1>:2\nError [ERR_MODULE_NOT_FOUND]: Cannot find module", name: "Error"},
	"\nawait import('./nosuch.mjs')": {err: "Error [ERR_MODULE_NOT_FOUND]: Cannot find module", name: "Error"},
	"1\n\nimport { nosuch } from './esm.mjs'": {
		err: "<cell-1>:3\nSyntaxError: The requested module './esm.mjs' does not provide an export named 'nosuch'", name: "SyntaxError"},
	"import './broken.mjs'":                                    {err: "<cell-1>:1\nError: broken\n    at file:///", name: "Error"},
	"if (true) { import a from './esm.mjs' }":                  {err: "<cell-1>:1\nif (true) { import a from './esm.mjs' }\nSyntaxError: 'import' and 'export' may only", name: "SyntaxError"},
	"import { a } from './esm.mjs'\nlet y = ;":                 {err: "<cell-1>:2\nlet y = ;\nSyntaxError: Unexpected token", name: "SyntaxError"},
	"import { a from './esm.mjs'":                              {err: "<cell-1>:1\nimport { a from './esm.mjs'\nSyntaxError: Unexpected token", name: "SyntaxError"},
	"import { a } from './esm.mjs'\n\nnull.x":                  {err: "at <cell-1>:3:6", name: "TypeError"},
	"\n\nexport const f = () => { throw new Error('e') }\nf()": {err: "at f (<cell-1>:3:32)\n    at <cell-1>:4:1", name: "Error"},
	"import { a } from './esm.mjs'; import { a } from './esm.mjs'": {err: "'a' has already been declared",
		name: "SyntaxError"},
}

func TestModuleSyntax(t *testing.T) {
	b := newBench(t, session.Config{})
	ctx := t.Context()
	s := b.Create(t, proto.CreateContainer{})
	if _, err := s.Run(ctx, proto.Cmd{Command: moduleFiles, JobID: "modules"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.run.Create(ctx, sessiontest.Owner, s.ID(), code.NewContext{Name: "main", Language: "js",
		JobID: "modules", Env: map[string]string{"NODE_NO_WARNINGS": "1"}}); err != nil {
		t.Fatal(err)
	}
	for text, w := range modulePrograms {
		if _, err := b.run.Restart(ctx, sessiontest.Owner, s.ID(), "main"); err != nil {
			t.Fatal(err)
		}
		res := b.cell(t, s, "main", text)
		w.check(t, text, res)
		if strings.Contains(res.Error, "berth") {
			t.Errorf("%s: the error shows the driver: %s", text, res.Error)
		}
	}
}

// What a cell imports is there in later cells, which may import it again.
func TestImportsLast(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	for _, step := range []step{
		{"import fs, { existsSync as e } from 'fs'; import path from 'path'", want{}},
		{"typeof fs.stat + e('/') + path.join('a', 'b')", want{results: []string{"'functiontruea/b'"}}},
		{"import fs from 'fs'\nimport { existsSync as e } from 'node:fs'\ne('/')", want{results: []string{"true"}}},
		{"export const kept = 1; export default function named() { return kept }", want{}},
		{"named()", want{results: []string{"1"}}},
	} {
		step.want.check(t, step.text, b.cellIn(t, s, "js", step.text))
	}
}

// A cell may declare a name otherwise than an earlier cell did. Nothing of a cell runs twice for that.
func TestNamesAreDeclaredAgain(t *testing.T) {
	b := newBench(t, session.Config{})
	s := b.Create(t, proto.CreateContainer{})
	for _, step := range []step{
		{"let a = 1; const b = 2; var c = 3; function f() {}; class D {}; import { sep } from 'path'; let n = 0", want{}},
		{"n++; const a = 4, x = 1; let b = 5; let c = 6; [a, x, b, c, n]", want{results: []string{"[ 4, 1, 5, 6, 1 ]"}}},
		{"const f = () => 7, D = 8; let sep = 9; f() + D + sep", want{results: []string{"24"}}},
		{"n++; function a() { return n }\na()", want{results: []string{"2"}}},
		{"let t = 0\nfor (var a = 0; a < 3; a++) t += a\nt", want{results: []string{"3"}}},
		{"class a { m() { return 5 } }\nawait new a().m()", want{results: []string{"5"}}},
		{"n++; let b = 0; b += 1", want{err: "'b' has already been declared", name: "SyntaxError"}},
		{"n++; let u; let u", want{err: "'u' has already been declared", name: "SyntaxError"}},
		{"n++; eval('let v; let v')", want{err: "'v' has already been declared", name: "SyntaxError"}},
		{"n", want{results: []string{"3"}}},
		{"\nconst a = 1; null.x", want{err: ":2:", name: "TypeError"}},
		{"let y = 1\nfoo(", want{err: "<cell-12>:2\nfoo(\n", name: "SyntaxError"}},
	} {
		step.want.check(t, step.text, b.cellIn(t, s, "js", step.text))
	}
}

// cellIn runs a cell of a language in the context main.
func (b bench) cellIn(t *testing.T, s *session.Session, language, text string) code.Outcome {
	t.Helper()
	res, err := b.run.Cell(context.Background(), sessiontest.Owner, s.ID(), "main",
		code.Cell{Code: text, Language: language}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return res
}
