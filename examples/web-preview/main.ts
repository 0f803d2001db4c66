import { Sandbox } from '@berth/sdk'

await using sandbox = await Sandbox.create()
await sandbox.files.write('site/index.html', '<h1>Hello from a container</h1>\n')
const command = 'python3 -m http.server 8000 --directory site'
const server = await sandbox.run(command, { background: true })
await sandbox.ports.wait(8000)

// This URL is signed: a browser on the daemon's machine can open it without an API key for ten minutes.
console.log('open', await sandbox.ports.url(8000, { expiresInSeconds: 600 }))

const page = await sandbox.ports.fetch(8000, '/')
console.log(page.status, await page.text())
await server.kill()
