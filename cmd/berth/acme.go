package main

import (
	"errors"
	"fmt"
	"time"

	"berth/cli/app"
	"berth/daemon"
	"berth/daemon/acme"
)

// acmeFlags adds the flags of `berth serve` for certificates by ACME.
func (o *options) acmeFlags() {
	f, cfg := o.flags, &o.cfg
	f.StringVar(&cfg.ACME.Authority, "acme", "", "serve HTTPS with a certificate for --domain that this ACME "+
		"authority issues: letsencrypt, letsencrypt-staging or the URL of a directory; needs --acme-agree")
	f.BoolVar(&o.acmeAgreed, "acme-agree", false, "you agree to the terms of service of the authority of --acme")
	f.StringVar(&cfg.ACME.Email, "acme-email", "", "mail address that the ACME authority may write to (default none)")
	f.StringVar(&cfg.ACME.DNS, "acme-dns", "", "how to set the DNS record by which the authority certifies the domain "+
		"and all names below it: rfc2136, acme-dns or exec, with the settings in --acme-config")
	f.StringVar(&cfg.ACME.HTTP, "acme-http", "", "address, such as :80, that answers the authority over HTTP; it then "+
		"certifies the domain alone and no name below it")
	f.StringVar(&cfg.ACMEConfig, "acme-config", "", "file with lines NAME=VALUE, readable by its owner only: settings "+
		"of --acme-dns, and eab_kid, eab_hmac, profile and ca; read at startup")
}

// checkACME refuses flags that need another one, or contradict one.
func (o *options) checkACME() error {
	a := o.cfg.ACME
	if a.Authority == "" {
		for _, f := range [][2]string{{"acme-dns", a.DNS}, {"acme-http", a.HTTP}, {"acme-email", a.Email},
			{"acme-config", o.cfg.ACMEConfig}} {
			if f[1] != "" {
				return fmt.Errorf("--%s needs --acme", f[0])
			}
		}
		return nil
	}
	switch {
	case o.cfg.TLSCert != "": // it would be unclear which one clients see
		return errors.New("--acme contradicts --tls-cert; leave one of them out")
	case a.DNS != "" && a.HTTP != "":
		return errors.New("--acme-http contradicts --acme-dns; leave one of them out")
	case !o.acmeAgreed:
		return errors.New("--acme needs your agreement to the terms of service of the authority; read them, and " +
			"give --acme-agree")
	case o.cfg.Domain == "":
		return errors.New("--acme: the certificate is for the domain of --domain, and there is none")
	case a.DNS == "" && a.HTTP == "":
		return errors.New("--acme: say how the authority checks the domain, with --acme-dns or --acme-http")
	}
	return nil
}

// examineCertificate reports how the certificate stands that the daemon gets by ACME, if it does.
func examineCertificate(dir string, now time.Time, report func(app.Finding)) {
	s, known := acme.Examine(daemon.ACMEDir(dir))
	if !known {
		return
	}
	f := app.Finding{Name: "certificate", Grade: app.GradeOK, Found: "issued by ACME until " +
		s.Expires.Local().Format(time.DateTime)}
	switch {
	case s.Expires.IsZero():
		f.Grade, f.Found = app.GradeWarn, "the ACME authority has issued none"
	case now.After(s.Expires):
		f.Grade = app.GradeWarn
		f.Found = "the one issued by ACME has expired on " + s.Expires.Local().Format(time.DateTime)
	case s.Tries > 0:
		f.Grade, f.Found = app.GradeWarn, f.Found+", and is not renewed"
	}
	if f.Grade != app.GradeOK {
		f.Why = "clients that do not trust the daemon's own authority refuse it"
		f.Fix = "run the daemon with --acme; its log says what fails"
		if s.Error != "" {
			f.Fix = "mend what the last try failed with: " + s.Error
		}
	}
	report(f)
}
