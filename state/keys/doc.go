// Package keys keeps the daemon's API keys: who may ask for something, on whose behalf, and for how much.
//
// A key is random, its secret is told once, and the ledger has its SHA-256 alone. What is made with it belongs to its
// owner, the tenant. All keys are in memory, so that a flood of wrong ones costs a hash each and never a read of the
// ledger.
//
//	keys/       <key id>   record
//	key_usage/  <key id>   spent: CPU seconds of one day
//
// One key is special: the one in the daemon's key file. It is an admin of DefaultOwner, and can only be replaced on
// disk, so that nobody locks himself out of the daemon through its API.
//
// Store answers four questions: Authenticate (whose key is this, and is it within its rate), Life (until when),
// MaxSessions, MaxStorage and MayRun (how much is allowed). The parts that hand out sessions and bytes count them
// under their own locks, at the moment they hand them out; the store only knows the bounds.
package keys
