// A reader of CSV as RFC 4180 has it: fields in quotes may hold commas, lines and doubled quotes.

export function parseCSV(text, comma = ',') {
	const rows = []
	let row = [], field = '', quoted = false
	for (let i = 0; i < text.length && rows.length < 1000; i++) {
		const ch = text[i]
		if (quoted) {
			if (ch !== '"') field += ch
			else if (text[i + 1] === '"') field += text[++i]
			else quoted = false
		} else if (ch === '"' && field === '') quoted = true
		else if (ch === comma || ch === '\n') {
			row.push(field.replace(/\r$/, ''))
			field = ''
			if (ch === '\n') {
				rows.push(row)
				row = []
			}
		} else field += ch
	}
	if (field || row.length) rows.push([...row, field])
	return rows
}
