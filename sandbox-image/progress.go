package sandboximage

// The steps of a build, in order.
const (
	StepWaiting        = "waiting"         // another build holds the cache
	StepUpdating       = "updating"        // fetching package lists, in files
	StepDownloading    = "downloading"     // in packages
	StepUnpackingLayer = "unpacking layer" // of the image below, or of an earlier build; in bytes
	StepUnpacking      = "unpacking"       // in packages
	StepConfiguring    = "configuring"     // in packages; overlaps with unpacking
	StepInstalling     = "installing"      // Python packages and modules of npm, in wheels
	StepFinishing      = "finishing"       // setting up users, links and caches; no count
	StepPacking        = "packing"         // in bytes of the image's files
)

// A Step is how far a build is. Counts of a step only grow.
type Step struct {
	Name  string // one of the Step constants
	Layer string // the layer under way, of an image that adds to another; may be empty
	Item  string // what is being worked on, such as a package; may be empty
	Done  int64
	Total int64 // 0 if unknown
	Bytes bool  // Done and Total are bytes, not a number of things
}

// step reports progress to whoever watches.
func (b *build) step(s Step) {
	s.Layer = b.layer
	if b.progress != nil {
		b.progress(s)
	}
}
