package grep

import (
	"bytes"
	"errors"
	"regexp"
	"regexp/syntax"
	"strings"

	"berth/guest/wire"
	"berth/proto"
)

// A pattern is what lines are compared with.
type pattern struct {
	re *regexp.Regexp // nil: literal is the whole pattern
	// literal is a text that each line with a match has, or nil. To look for it takes a fraction of the time that the
	// expression takes.
	literal []byte
}

// compile reads a pattern of a client.
func compile(o *proto.GrepOptions) (pattern, error) {
	text := o.Pattern
	if o.Fixed && !o.IgnoreCase {
		return pattern{literal: []byte(text)}, nil
	}
	if o.Fixed {
		text = regexp.QuoteMeta(text)
	}
	if o.IgnoreCase {
		text = "(?i)" + text
	}
	re, err := regexp.Compile(text)
	if err != nil {
		why := err.Error()
		var bad *syntax.Error
		if errors.As(err, &bad) {
			why = bad.Code.String() + ": " + bad.Expr
		}
		return pattern{}, proto.Errorf(proto.InvalidArgument, wire.OpGrep, "pattern", "the pattern is no regular "+
			"expression of RE2 (%s); set fixed for a text", wire.CleanText(strings.ToValidUTF8(why, "\uFFFD"), 200))
	}
	tree, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return pattern{re: re}, nil
	}
	return pattern{re: re, literal: []byte(required(tree.Simplify()))}, nil
}

// required returns the longest text that is in everything that an expression matches, as far as that is easy to see.
func required(e *syntax.Regexp) (text string) {
	switch e.Op {
	case syntax.OpLiteral:
		if e.Flags&syntax.FoldCase == 0 {
			return string(e.Rune)
		}
	case syntax.OpCapture, syntax.OpPlus:
		return required(e.Sub[0])
	case syntax.OpConcat:
		for _, sub := range e.Sub {
			if s := required(sub); len(s) > len(text) {
				text = s
			}
		}
	}
	return text
}

// find returns where the first match in a line is.
func (p *pattern) find(line []byte) (from, to int, ok bool) {
	if p.re == nil {
		from = bytes.Index(line, p.literal)
		return from, from + len(p.literal), from >= 0
	}
	at := p.re.FindIndex(line)
	if at == nil {
		return 0, 0, false
	}
	return at[0], at[1], true
}
