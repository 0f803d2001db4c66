// The code tool of LibreChat's agents, unchanged. For LibreChat itself, put the two lines that `berth librechat env`
// prints into its .env file.
import { createCodeExecutionTool } from '@librechat/agents'

const tool = createCodeExecutionTool({ user_id: 'someone' })
const code = "open('/mnt/data/out.csv', 'w').write('a,b')\nprint(6 * 7)"
const call = { type: 'tool_call', id: '1', name: tool.name, args: { lang: 'py', code } }
const answer = await tool.invoke(call)
console.log(answer.content)
console.log('files:', answer.artifact.files.map(file => file.name))
process.exit(0) // the library keeps timers
