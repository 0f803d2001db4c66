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

// A Step is the progress of a build. The counts of a step only grow.
type Step struct {
	Name  string // one of the Step constants
	Layer string // the layer being built, of an image that extends another; may be empty
	Item  string // the present item, such as a package; may be empty
	Done  int64
	Total int64 // 0 if unknown
	Bytes bool  // Done and Total are bytes, not a number of items
}

// step reports progress.
func (b *build) step(s Step) {
	s.Layer = b.layer
	if b.progress != nil {
		b.progress(s)
	}
}
