package native

import (
	"net/http"
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
func (e *edge) addInputs(c *call) error {
	var req inputs
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	// An empty list is allowed; a missing one is a mistake.
	if req.Files == nil {
		return invalid("files", "files must list the stored files to put there.")
	}
	api.Note(c.r.Context(), strings.Join(req.Files, " "))
	s, err := e.session(c)
	if err != nil {
		return err
	}
	if err := e.Jobs.Begin(c.r.Context(), s.Files, req.Files); err != nil {
		return err
	}
	return c.json(http.StatusOK, inputDir{proto.InputDir})
}

func (e *edge) listJobs(c *call, s *session.Session) error {
	jobs, err := e.Jobs.List(s)
	if err != nil {
		return err
	}
	return list(c, jobs)
}

// The manifest looks at files and needs the guest. listJobs only reads the ledger.
func (e *edge) jobManifest(c *call, s *session.Session) error {
	m, err := e.Jobs.Manifest(c.r.Context(), s, c.r.PathValue("job"))
	if err != nil {
		return err
	}
	return c.json(http.StatusOK, m)
}

// The path of a file of a job.
type publication struct {
	Path string `json:"path" schema:"minLength=1 belowJob"` // Below the job's directory.
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
func (e *edge) publishFile(c *call) error {
	var req publication
	if err := api.Decode(c.r, &req); err != nil {
		return err
	}
	s, err := e.session(c)
	if err != nil {
		return err
	}
	api.Note(c.r.Context(), req.Path)
	job, err := c.job(s)
	if err != nil {
		return err
	}
	f, err := e.Jobs.Publish(c.r.Context(), s, job, req.Path)
	if err != nil {
		return err
	}
	api.Note(c.r.Context(), f.ID)
	return c.json(http.StatusCreated, published{f.ID, f.Filename, f.MIMEType, f.SizeBytes, f.SHA256, f.CreatedAt,
		f.ExpiresAt})
}

// job returns the job that the path names. A name that no job can have is a 404, since it is part of the path.
func (c *call) job(s *session.Session) (string, error) {
	job := c.r.PathValue("job")
	if !proto.ValidJobID(job) {
		return "", proto.Errorf(proto.NotFound, "", shortened(job), "job %.80q does not exist in container %s",
			job, s.ID())
	}
	return job, nil
}

// Root reads, since files of a job may be closed to the default user; the caller owns the container.
func (e *edge) jobTar(c *call, s *session.Session) error {
	job, err := c.job(s)
	if err != nil {
		return err
	}
	// Links on the way to the directory are not followed, since root reads.
	r, err := s.TarNoLinks(c.r.Context(), proto.UserRoot, proto.JobDir(job))
	if err != nil {
		return err
	}
	defer r.Close()
	return c.sendTar(r)
}
