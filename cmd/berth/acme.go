package main

import (
	"fmt"
	"time"

	"berth/cli/app"
	"berth/daemon"
	"berth/daemon/acme"

	"github.com/spf13/cobra"
)

// acmeFlags adds the flags of `berth serve` for certificates by ACME.
func acmeFlags(cmd *cobra.Command, cfg *daemon.Config) {
	f := cmd.Flags()
	var agreed bool
	f.StringVar(&cfg.ACME.Authority, "acme", "", "serve HTTPS with a certificate for --domain that this ACME "+
		"authority issues: letsencrypt, letsencrypt-staging or the URL of a directory; needs --acme-agree")
	f.BoolVar(&agreed, "acme-agree", false, "you agree to the terms of service of the authority of --acme")
	f.StringVar(&cfg.ACME.Email, "acme-email", "", "mail address that the ACME authority may write to (default none)")
	f.StringVar(&cfg.ACME.DNS, "acme-dns", "", "how to set the DNS record by which the authority certifies the domain "+
		"and all names below it: rfc2136, acme-dns or exec, with the settings in --acme-config")
	f.StringVar(&cfg.ACME.HTTP, "acme-http", "", "address, such as :80, that answers the authority over HTTP; it then "+
		"certifies the domain alone and no name below it")
	f.StringVar(&cfg.ACMEConfig, "acme-config", "", "file with lines NAME=VALUE, readable by its owner only: settings "+
		"of --acme-dns, and eab_kid, eab_hmac, profile and ca; read at startup")
	// With two certificates for the domain it would be unclear which one clients see.
	cmd.MarkFlagsMutuallyExclusive("tls-cert", "acme")
	cmd.MarkFlagsMutuallyExclusive("acme-dns", "acme-http")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		switch {
		case cfg.ACME.Authority == "" && (cfg.ACME.DNS+cfg.ACME.HTTP+cfg.ACME.Email+cfg.ACMEConfig != ""):
			return fmt.Errorf("--acme-dns, --acme-http, --acme-email and --acme-config need --acme")
		case cfg.ACME.Authority != "" && !agreed:
			return fmt.Errorf("--acme needs your agreement to the terms of service of the authority; read them, and " +
				"give --acme-agree")
		case cfg.ACME.Authority != "" && cfg.Domain == "":
			return fmt.Errorf("--acme: the certificate is for the domain of --domain, and there is none")
		case cfg.ACME.Authority != "" && cfg.ACME.DNS == "" && cfg.ACME.HTTP == "":
			return fmt.Errorf("--acme: say how the authority checks the domain, with --acme-dns or --acme-http")
		}
		return nil
	}
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
