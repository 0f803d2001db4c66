package names

import "golang.org/x/net/dns/dnsmessage"

// badVersion is BADVERS, the code of an answer to options of another version (RFC 6891).
const badVersion dnsmessage.RCode = 16

// options are those of EDNS that a question has. The zero value is those of a question without.
type options struct{ h dnsmessage.ResourceHeader }

// readOptions reads on to the options of a message, past all that a question does not need. bad reports what cannot be
// read, or two sets of options.
func readOptions(p *dnsmessage.Parser) (o options, found, bad bool) {
	if p.SkipAllQuestions() != nil || p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return o, false, true
	}
	for {
		h, err := p.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone {
			return o, found, false
		}
		if err != nil || h.Type == dnsmessage.TypeOPT && found || p.SkipAdditional() != nil {
			return o, found, true
		}
		if h.Type == dnsmessage.TypeOPT {
			o, found = options{h}, true
		}
	}
}

// version returns the version of EDNS.
func (o options) version() byte { return byte(o.h.TTL >> 16) }

// size returns how long an answer may be, in bytes: by TCP, that is most anyway.
func (o options) size(most int) int {
	if most > MaxMessage {
		return most
	}
	return int(o.h.Class)
}

// ownOptions are those of answers with a code.
func ownOptions(code dnsmessage.RCode) dnsmessage.Resource {
	r := dnsmessage.Resource{Body: &dnsmessage.OPTResource{}}
	_ = r.Header.SetEDNS0(MaxMessage, code, false) // it fails for no such values
	return r
}
