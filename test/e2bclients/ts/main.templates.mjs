// Templates of the newest JavaScript SDK of E2B.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { BuildError, Sandbox, Template, waitForPort } from 'e2b'

const name = 'js-' + Date.now()
const here = fs.mkdtempSync(path.join(os.tmpdir(), 'templates-'))
fs.mkdirSync(path.join(here, 'app/deep'), { recursive: true })
fs.writeFileSync(path.join(here, 'app/main.js'), "console.log('app')\n")
fs.writeFileSync(path.join(here, 'app/deep/x.txt'), 'deep\n')
fs.writeFileSync(path.join(here, 'one.txt'), '1\n')
const out = async (box, command) => (await box.commands.run(command)).stdout

const logs = []
const template = Template({ fileContextPath: here })
  .fromBaseImage()
  .setEnvs({ COLOR: 'blue' })
  .copy('app', '/opt/app')
  .copy('one.txt', '/srv/', { mode: 0o600 })
  .setWorkdir('/srv/work')
  .runCmd('echo "$COLOR" > color && node /opt/app/main.js > out')
  .setStartCmd('python3 -m http.server 8124', waitForPort(8124))
assert.equal(await Template.exists(name), false)
const built = await Template.build(template, name, { onBuildLogs: (entry) => logs.push(entry.message) })
assert.equal(built.templateId, name)
assert(logs.some((line) => line.includes('RUN echo "$COLOR"')), logs.join('\n'))
assert.equal(await Template.exists(name), true)
const box = await Sandbox.create(name)
assert.equal(await out(box, 'cat color out /opt/app/deep/x.txt; stat -c %a /srv/one.txt; pwd'),
  'blue\napp\ndeep\n600\n/srv/work\n')
assert.match(await out(box, 'curl -s http://127.0.0.1:8124/'), /color/)
assert.equal(await box.kill(), true)

const file = Template({ fileContextPath: here }).fromDockerfile('FROM base\nCOPY one.txt /x/\nRUN cat /x/one.txt\n')
const info = await Template.buildInBackground(file, name + ':file', { tags: ['again'] })
let status
do {
  await new Promise((resolve) => setTimeout(resolve, 100))
  status = await Template.getBuildStatus(info)
} while (status.status === 'building' || status.status === 'waiting')
assert.equal(status.status, 'ready', JSON.stringify(status))
assert.deepEqual((await Template.getTags(name)).map((t) => t.tag).sort(), ['again', 'default', 'file'])
await Template.removeTags(name, ['again'])

await assert.rejects(Template.build(Template().fromImage('base').runCmd('exit 9'), name + '-bad'),
  (error) => error instanceof BuildError && /process "exit 9" .*exit code 9/.test(error.message))
assert.equal(await Sandbox.deleteSnapshot(name), true)
assert.equal(await Template.exists(name), false)
console.log('done')
