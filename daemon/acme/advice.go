package acme

import (
	"context"
	"errors"
	"net"

	"github.com/mholt/acmez/v3/acme"
)

// isProblem reports whether the authority has answered with a problem of this type.
func isProblem(err error, kind string) bool {
	var p acme.Problem
	return errors.As(err, &p) && p.Type == kind
}

// advice returns what an operator can do about an error. The daemon goes on trying in any case.
func advice(err error, byDNS bool) string {
	var p acme.Problem
	if !errors.As(err, &p) {
		var netErr net.Error
		if errors.As(err, &netErr) || errors.Is(err, context.DeadlineExceeded) {
			return "check that this machine reaches the authority of --acme, and with a private one the setting ca"
		}
		return "mend what the error says; the daemon tries again"
	}
	switch p.Type {
	case acme.ProblemTypeRateLimited:
		return "wait; the authority counts tries, so find out with --acme letsencrypt-staging first"
	case acme.ProblemTypeExternalAccountRequired:
		return "put eab_kid and eab_hmac, which the authority gives its customers, into --acme-config"
	case acme.ProblemTypeUserActionRequired:
		return "the authority wants its new terms to be agreed to; open the page that the error names"
	case acme.ProblemTypeCAA:
		return "let the domain's CAA record name this authority, or remove the record"
	case acme.ProblemTypeRejectedIdentifier, acme.ProblemTypeUnsupportedIdentifier:
		return "choose another --domain or --acme; the authority does not certify this one"
	case acme.ProblemTypeInvalidContact, acme.ProblemTypeUnsupportedContact:
		return "give another --acme-email, or none"
	case acme.ProblemTypeConnection, acme.ProblemTypeDNS, acme.ProblemTypeUnauthorized,
		acme.ProblemTypeIncorrectResponse, acme.ProblemTypeTLS:
		if byDNS {
			return "check that the name servers of --domain are those that --acme-config changes"
		}
		return "check that --domain leads to this machine, and that its port 80 leads to --acme-http"
	}
	return "mend what the error says; the daemon tries again"
}
