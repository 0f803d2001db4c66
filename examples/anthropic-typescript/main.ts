// Claude's code execution tool by berth, as a stream: the official SDK with another base URL.
// Needs `berth serve --upstream …`.
import Anthropic from '@anthropic-ai/sdk'

const client = new Anthropic({ baseURL: process.env.BERTH_URL, apiKey: process.env.BERTH_API_KEY })
const stream = client.messages.stream({
  model: process.env.MODEL!,
  max_tokens: 4000,
  tools: [{ type: 'code_execution_20250825', name: 'code_execution' }],
  messages: [{ role: 'user', content: 'What is 2**100? Compute it.' }]
})
stream.on('text', text => process.stdout.write(text))
const message = await stream.finalMessage()
console.log()
for (const block of message.content) {
  if (block.type === 'server_tool_use') console.log('ran', block.input)
}
