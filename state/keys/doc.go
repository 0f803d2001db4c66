// Package keys keeps the daemon's API keys: which callers may send requests, for which owner, within which bounds.
//
// A key is random. Its secret is shown once; the ledger stores only its SHA-256. Everything made with a key belongs
// to the key's owner, the tenant. All keys are in memory: a flood of wrong ones costs a hash each and never a read of
// the ledger.
//
//	keys/       <key id>   record
//	key_usage/  <key id>   spent: CPU seconds of one day
//
// The key in the daemon's key file is special. It is an admin of DefaultOwner and can only be replaced on disk, so no
// API call can lock the operator out.
//
// Store answers four questions: Authenticate (whose key is this, and is it within its rate), Life (until when),
// MaxSessions, MaxStorage and MayRun (the bounds). The packages that hand out sessions and bytes count them under
// their own locks at that moment; the store only knows the bounds.
package keys
