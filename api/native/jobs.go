package native

import (
	"strings"

	"berth/api"
	"berth/proto"
	"berth/session"
)

// Stored files to put into a container.
type inputs struct {
	Files []string `json:"files"` // IDs of the Files API.
}

// Where the stored files are.
type inputDir struct {
	InputDir string `json:"input_dir"`
}

// It can be called again: files that are there are not copied twice.
func (e *edge) addInputs(c *call, req inputs) (dir inputDir, err error) {
	// An empty list is allowed; a missing one is a mistake.
	if req.Files == nil {
		return dir, proto.Invalid("files", "files must list the stored files to put there.")
	}
	api.Note(c.ctx(), strings.Join(req.Files, " "))
	s, err := e.session(c)
	if err != nil {
		return dir, err
	}
	return inputDir{proto.InputDir}, e.Jobs.Begin(c.ctx(), s.Files, req.Files)
}

func (e *edge) listJobs(_ *call, s *session.Session) (page[proto.JobSummary], error) {
	return list(e.Jobs.List(s))
}

// The manifest looks at files and needs the guest. listJobs only reads the ledger.
func (e *edge) jobManifest(c *call, s *session.Session) (proto.Manifest, error) {
	return e.Jobs.Manifest(c.ctx(), s, c.path("job"))
}

// The path of a file of a job.
type publication struct {
	Path string `json:"path" schema:"minLength=1 pattern=^[^/\\x00][^\\x00]*$"` // Below the job's directory.
}

// A file of a job that became a stored file.
type published struct {
	FileID    string      `json:"file_id"`
	Filename  string      `json:"filename"`
	MIMEType  string      `json:"mime_type"`
	SizeBytes int64       `json:"size_bytes"`
	SHA256    string      `json:"sha256"`
	CreatedAt proto.Time  `json:"created_at"`
	ExpiresAt *proto.Time `json:"expires_at"`
}

// Publishing twice stores the file twice: the file may have changed, and stored files never do.
func (e *edge) publishFile(c *call, req publication) (done published, err error) {
	s, err := e.session(c)
	if err != nil {
		return done, err
	}
	api.Note(c.ctx(), req.Path)
	job, err := c.job(s)
	if err != nil {
		return done, err
	}
	f, err := e.Jobs.Publish(c.ctx(), s, job, req.Path)
	if err != nil {
		return done, err
	}
	api.Note(c.ctx(), f.ID)
	return published{f.ID, f.Filename, f.MIMEType, f.SizeBytes, f.SHA256, f.CreatedAt, f.ExpiresAt}, nil
}

// job returns the job that the path names. A name that no job can have is a 404, since it is part of the path.
func (c *call) job(s *session.Session) (string, error) {
	job := c.path("job")
	if !proto.ValidJobID(job) {
		return "", proto.Errorf(proto.NotFound, "", api.Shortened(job), "job %.80q does not exist in container %s",
			job, s.ID())
	}
	return job, nil
}

// Root reads, since files of a job may be closed to the default user; the caller owns the container.
func (e *edge) jobTar(c *call, s *session.Session) (any, error) {
	job, err := c.job(s)
	if err != nil {
		return nil, err
	}
	// Links on the way to the directory are not followed, since root reads.
	return nil, c.sendTar(s.TarNoLinks(c.ctx(), proto.UserRoot, proto.JobDir(job)))
}
