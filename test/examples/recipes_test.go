package examples_test

// recipes are the directories of examples, with what the suite expects of each.
var recipes = map[string]recipe{
	"python":       {python: "sdk", prints: []string{`^4 data.csv$`}, makes: map[string]string{"chart.png": png}},
	"python-async": {python: "sdk", prints: []string{`^primes in each range: \[168, 135, 128\]$`}},
	"typescript":   {node: "tsx", prints: []string{`^4 data.csv$`}, makes: map[string]string{"chart.png": png}},
	"go":           {inPlace: true, prints: []string{`^3 data.csv$`, `^sum of degrees: 23$`}},
	"curl":         {prints: []string{`^4 /workspace/data.csv$`, `^45$`, `^deleted container_`}},

	"streaming": {python: "sdk", prints: []string{`^step 1\nstep 2\nstep 3$`, `^stdout: hello reader$`, `^stderr: done$`,
		`^return code 0$`}},
	"files": {python: "sdk", prints: []string{`^made sorted.csv$`, `texts/a.txt.*texts/all.txt`},
		makes: map[string]string{"sorted.csv": "city,degrees\nOslo,4\n", "texts-back/all.txt": "first\nsecond\n"}},
	"code-contexts": {python: "sdk", prints: []string{`^\['item', 'price'\] \[\['tea', 2.5\], \['milk', 1.2\]\]$`,
		`^error: KeyError: 'colour'$`, `^sum in JavaScript: 3.7$`}},
	"snapshots": {python: "sdk", prints: []string{`^restored: level=1$`, `^copy: level=10$`, `^copy: level=20$`,
		`^copy: level=30$`, `^original: level=1$`}},
	"watch": {python: "sdk", prints: []string{`^create a.txt$`, `^rename a.txt$`, `^create b.txt$`, `^remove b.txt$`,
		`^create end$`}},
	"webhooks":   {python: "sdk", prints: []string{`^verified: exec.ended in our container$`}},
	"code-tools": {python: "sdk", prints: []string{`^total: 1837.5$`, `^unknown: \w+Error`}},
	"stored-tools": {python: "sdk", prints: []string{`^output: \{'words': 3, 'longest': 'stored'\}$`,
		`^refused: input.text$`}},
	"dockerfile": {python: "sdk", prints: []string{`^hi build\nhello you$`}},
	"secrets": {python: "sdk", env: map[string]string{"GITHUB_TOKEN": githubToken},
		prints: []string{`^leaked: False$`, `^octocat$`, `^other hosts: refused$`}},

	"data-analysis": {python: "sdk", prints: []string{`^2026-02 +9 +4 +15$`, `^made chart.png$`},
		makes: map[string]string{"months.csv": "day,bread,milk,tea\n2026-01,,7.0,12.0\n", "chart.png": png}},
	"web-preview": {node: "tsx", prints: []string{
		`^open http://8000-.*localhost`, `^200 <h1>Hello from a container</h1>$`}},
	"ci-runner": {python: "sdk", prints: []string{`^== test\n(.*\n)*OK$`, `^all steps passed$`},
		makes: map[string]string{"project.tar.gz": "\x1f\x8b"}},
	"evaluation": {python: "sdk", prints: []string{
		`^model-a: passed\nmodel-b: failed by exit\nmodel-c: failed by timeout$`}},
	"notebook": {python: "sdk", prints: []string{`^3 cells are in done.ipynb$`},
		makes: map[string]string{"done.ipynb": "{\n \"cells\""},
		has:   map[string]string{"done.ipynb": `"image/png": "iVBORw0KGgo`}},
	"playwright": {python: "frameworks", large: true, env: map[string]string{"CHROMIUM": chromium()},
		prints: []string{`^passed; the page is in page.png$`}, makes: map[string]string{"page.png": png}},
	"approval-bot": {python: "sdk", stdin: "y\nn\n", prints: []string{`ada@example.com sent$`,
		`^everyone@example.com was refused: .*the bot's person said no`, `\(sent to ada@example.com\)$`}},

	"anthropic-gateway": {python: "anthropic", prints: []string{`^The mean is 11.5.$`, `^made file_\w+ b'11.5'$`,
		`^container container_`}},
	"anthropic-tools": {python: "frameworks", large: true, prints: computed},
	"anthropic-typescript": {node: "frameworks", large: true, prints: []string{`It is 1267650600228229401496703205376`,
		`^ran \{ command: `}},
	"claude-agent-sdk": {python: "frameworks", large: true, prints: computed},
	"claude-code":      {claude: true, env: map[string]string{"ANTHROPIC_MODEL": "claude-code"}, prints: computed},
	"cursor":           {after: useAsCursor},
	"langchain":        {python: "frameworks", large: true, prints: computed},
	"letta": {python: "letta", large: true, env: map[string]string{"OPENAI_BASE_URL": "%MODELS%/letta/v1"},
		prints: computed},
	"litellm": {python: "frameworks", large: true, env: map[string]string{"MODEL": "openai/litellm"},
		prints: computed},
	"openai-agents": {python: "frameworks", large: true, prints: computed},
	"praisonai":     {python: "praisonai", prints: []string{`Together they cost 3.7 euros.`}},
	"pydantic-ai":   {python: "frameworks", large: true, prints: computed},
	"smolagents":    {python: "frameworks", large: true, prints: computed},
	"vercel-ai-sdk": {node: "frameworks", large: true, env: map[string]string{"ANTHROPIC_BASE_URL": "%MODELS%/v1"},
		prints: computed},

	"e2b": {python: "e2b", env: e2bURLs, prints: []string{`^3 /home/user/data.csv$`, `^sum of degrees: 23$`}},
	"librechat": {node: "librechat", env: map[string]string{"LIBRECHAT_CODE_BASEURL": "%URL%/librechat/%KEY%/v1"},
		prints: []string{`^42$`, `^files: \[ 'out.csv' \]$`}},
}

// computed is what recipes print that ask a model for a number that it cannot know without their container.
var computed = []string{`^It is 1267650600228229401496703205376.$`}

const png = "\x89PNG\r\n"

var e2bURLs = map[string]string{"E2B_API_URL": "%URL%", "E2B_SANDBOX_URL": "%URL%", "E2B_API_KEY": "%E2B_KEY%"}
