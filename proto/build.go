package proto

import (
	"strings"
	"time"
)

// BuildOptions say how an image is built from a Dockerfile and a context.
type BuildOptions struct {
	Name       string            `json:"name"`                 // of the image
	MoreNames  []string          `json:"more_names,omitempty"` // the image gets these, too
	Platform   string            `json:"platform,omitempty"`   // the daemon's own, such as linux/amd64; default that
	Dockerfile string            `json:"dockerfile,omitempty"` // path in the context; default Dockerfile
	Target     string            `json:"target,omitempty"`     // the stage that becomes the image; default the last
	Args       map[string]string `json:"args,omitempty"`       // values for ARG
	Labels     map[string]string `json:"labels,omitempty"`     // of the image, beside those of the Dockerfile
	NoCache    bool              `json:"no_cache,omitempty"`   // run every step
	Pull       bool              `json:"pull,omitempty"`       // ask registries for base images that are here, too
	Network    Network           `json:"network,omitzero"`     // what steps may reach; default nothing
	Class      RuntimeClass      `json:"runtime_class,omitempty"`
	// Of each step; steps run one after another. disk_bytes is for all that the build writes.
	Limits         Limits `json:"limits,omitzero"`
	TimeoutSeconds int64  `json:"timeout_seconds,omitempty"`
	// What RUN --mount=type=secret mounts, by ID. It is never part of a JSON text.
	Secrets map[string][]byte `json:"-"`
}

// Bounds of the secrets of a build. All of them are in memory while the build waits and runs.
const (
	MaxBuildSecrets     = 32
	MaxBuildSecretBytes = 500 << 10 // each
	MaxBuildSecretsSize = 2 << 20   // all together, in bytes

	maxBuildSecretID = 128 // bytes of an ID
)

// CheckBuildSecrets checks the secrets of a build, by ID.
func CheckBuildSecrets(secrets map[string][]byte) error {
	if len(secrets) > MaxBuildSecrets {
		return Invalid("secret", "a build has %d secrets at the most; put several values into one file.",
			MaxBuildSecrets)
	}
	total := 0
	for id, value := range secrets {
		if err := checkBuildSecretID(id); err != nil {
			return err
		}
		if len(value) > MaxBuildSecretBytes {
			return Errorf(TooLarge, "build", id, "the secret %s has more than %d KiB, which is the most; what is "+
				"larger belongs into the build context, or is fetched by a step", id, MaxBuildSecretBytes>>10)
		}
		total += len(value)
	}
	if total > MaxBuildSecretsSize {
		return Errorf(TooLarge, "build", "secret", "the secrets of the build have more than %d KiB together, which is "+
			"the most", MaxBuildSecretsSize>>10)
	}
	return nil
}

func checkBuildSecretID(id string) error {
	ok := id != "" && len(id) <= maxBuildSecretID
	for _, c := range []byte(id) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			strings.IndexByte("_.:@+-", c) >= 0)
	}
	if !ok {
		return Invalid("secret", "the ID of a secret must be 1 to %d letters, digits or _ . : @ + -, not %.140q.",
			maxBuildSecretID, id)
	}
	return nil
}

// A Build is a build that runs or waits.
type Build struct {
	ID        string    `json:"id"` // build_…
	Name      string    `json:"name"`
	State     string    `json:"state" schema:"enum=waiting|running"` // waiting: for an earlier build of the same owner
	StartedAt time.Time `json:"started_at"`
}

// BuildCache is what the daemon keeps of the caller's builds, so that later ones need not run the same steps again.
type BuildCache struct {
	Bytes   int64 `json:"bytes"`
	Entries int   `json:"entries"`
}

// BuildEventType is the kind of a BuildEvent.
type BuildEventType string

// The kinds of events.
const (
	BuildBegun    BuildEventType = "build"    // the first: the build has an ID
	BuildStep     BuildEventType = "step"     // a step has begun or ended
	BuildLog      BuildEventType = "log"      // output of a step
	BuildProgress BuildEventType = "progress" // bytes of a part of a step, or of a base image
	BuildWarning  BuildEventType = "warning"  // about the Dockerfile
	BuildCached   BuildEventType = "cache"    // the size of the cache
	BuildImage    BuildEventType = "image"    // the last of a build that succeeded
	BuildFailed   BuildEventType = "error"    // the last of a build that failed
)

// A BuildEvent is one event of a build.
type BuildEvent struct {
	Type     BuildEventType     `json:"type" schema:"enum=build|step|log|progress|warning|cache|image|error"`
	Build    *Build             `json:"build,omitempty"`
	Step     *BuildStepState    `json:"step,omitempty"`
	Log      *BuildLogPart      `json:"log,omitempty"`
	Progress *BuildProgressPart `json:"progress,omitempty"`
	Warning  string             `json:"warning,omitempty"`
	Cache    *BuildCache        `json:"cache,omitempty"`
	Image    *Image             `json:"image,omitempty"`
	Error    *BuildError        `json:"error,omitempty"`
}

// A BuildStepState is a step that has begun or ended.
type BuildStepState struct {
	Number  int     `json:"number"` // from 1, in the order in which steps were first seen
	Name    string  `json:"name"`   // such as [2/4] RUN make
	State   string  `json:"state" schema:"enum=running|cached|done|failed"`
	Seconds float64 `json:"seconds,omitempty"` // from its start to its end
	Error   string  `json:"error,omitempty"`
}

// A BuildLogPart is output of a step.
type BuildLogPart struct {
	Step   int    `json:"step"` // its number
	Stream string `json:"stream" schema:"enum=stdout|stderr"`
	Data   string `json:"data"` // bytes that are not UTF-8 are replaced
}

// A BuildProgressPart is how far a part of a step is, in bytes.
type BuildProgressPart struct {
	Step  int    `json:"step,omitempty"` // its number
	Item  string `json:"item"`
	Done  int64  `json:"done"`
	Total int64  `json:"total,omitempty"` // 0 if unknown
}

// A BuildError says why a build failed.
type BuildError struct {
	*Error
	Line     int    `json:"line,omitempty"`      // of the Dockerfile
	ExitCode int    `json:"exit_code,omitempty"` // of the command that failed
	Step     string `json:"step,omitempty"`      // the name of the step that failed
	Log      string `json:"log,omitempty"`       // the last lines of its output, at most 4 KiB
}
