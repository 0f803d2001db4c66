import { anthropic } from '@ai-sdk/anthropic'
import { createMCPClient } from '@ai-sdk/mcp'
import { generateText, isStepCount } from 'ai'

const berth = await createMCPClient({
  transport: {
    type: 'http',
    url: `${process.env.BERTH_URL}/mcp`,
    headers: { 'X-Api-Key': process.env.BERTH_API_KEY! }
  }
})
try {
  const { text } = await generateText({
    model: anthropic(process.env.MODEL!),
    tools: await berth.tools(), // the model names its container, and finds it again by that name
    stopWhen: isStepCount(10),
    prompt: 'What is 2**100? Compute it.'
  })
  console.log(text)
} finally {
  await berth.close()
}
