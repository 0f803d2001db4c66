package functions

// A connection that broke may have lost answers: the daemon then repeats the calls. So many answers are kept for that.
const (
	maxAnswers     = 1000
	maxAnswerBytes = 32 << 20
)

// answers keeps the newest answers. The zero value is empty.
type answers struct {
	byID  map[string][]byte
	order []string // IDs of the calls, oldest first
	bytes int
}

// add keeps an answer, and forgets the oldest ones beyond the limits.
func (a *answers) add(call string, text []byte) {
	if a.byID == nil {
		a.byID = map[string][]byte{}
	}
	a.byID[call] = text
	a.order = append(a.order, call)
	a.bytes += len(text)
	for len(a.order) > 1 && (len(a.order) > maxAnswers || a.bytes > maxAnswerBytes) {
		a.bytes -= len(a.byID[a.order[0]])
		delete(a.byID, a.order[0])
		a.order = a.order[1:]
	}
}
