// Package secrets keeps the secrets of sessions out of sight.
//
// In scope: what replaces secrets in texts that are kept or shown (Redactor for known values, Redact for what looks
// like one), the Vault that seals them for the ledger, and the certificate of the proxy's CA in a container, whose
// commands see placeholders and never the secrets.
//
// Out of scope: which secrets a session has and where they go (session), the requests that get them (egress), and the
// keys of the vault (state/vault). Package session, the manifests and the stored tools call it.
package secrets
