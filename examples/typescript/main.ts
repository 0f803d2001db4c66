import { readFile, writeFile } from 'node:fs/promises'
import { Sandbox } from '@berth/sdk'

await using sandbox = await Sandbox.create()
await sandbox.files.put('data.csv', await readFile('data.csv'))
console.log((await sandbox.run('wc -l data.csv')).stdout)
const { png } = await sandbox.code.run(`
import pandas as pd
pd.read_csv("data.csv").plot.bar(x="city", y="degrees")
`)
await writeFile('chart.png', png!)
console.log('The chart is in chart.png')
