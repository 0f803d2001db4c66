package client

import (
	"context"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"

	"berth/proto"
)

// A Skill is a skill as the Skills API shows it.
type Skill struct {
	ID              string     `json:"id"`
	DisplayName     string     `json:"display_name"`
	LatestVersionID string     `json:"latest_version_id"`
	Source          SkillFrom  `json:"source"`
	CreatedAt       proto.Time `json:"created_at"`
	UpdatedAt       proto.Time `json:"updated_at"`
}

// A SkillFrom says where a skill comes from: "custom" or "anthropic".
type SkillFrom struct {
	Type string `json:"type"`
}

// A SkillVersion is a version of a skill as the Skills API shows it.
type SkillVersion struct {
	ID          string     `json:"id"`
	SkillID     string     `json:"skill_id"`
	Name        string     `json:"name"`
	Description string     `json:"description"`
	CreatedAt   proto.Time `json:"created_at"`
}

// A SkillFile is a file of a skill to upload. Its path begins with the skill's directory.
type SkillFile struct {
	Path string
	Open func() (io.ReadCloser, error)
}

// CreateSkill stores a skill; displayName may be empty.
func (c *Client) CreateSkill(ctx context.Context, displayName string, files []SkillFile) (k Skill, err error) {
	err = c.sendSkill(ctx, at("skills"), displayName, files, &k)
	return k, err
}

// CreateSkillVersion stores a new version of a skill.
func (c *Client) CreateSkillVersion(ctx context.Context, id string, files []SkillFile) (v SkillVersion, err error) {
	err = c.sendSkill(ctx, at("skills", id, "versions"), "", files, &v)
	return v, err
}

// sendSkill sends files as a form, and reads each while it is sent.
func (c *Client) sendSkill(ctx context.Context, path, displayName string, files []SkillFile, out any) error {
	pr, pw := io.Pipe()
	form := multipart.NewWriter(pw)
	written := make(chan struct{})
	go func() {
		defer close(written)
		pw.CloseWithError(writeSkill(form, displayName, files))
	}()
	h := map[string]string{"Content-Type": form.FormDataContentType(),
		"anthropic-version": filesVersion["anthropic-version"]}
	_, err := c.call(ctx, request{method: http.MethodPost, path: path, raw: pr, header: h}, out)
	pr.Close() // unblocks the writer if the daemon did not read everything
	<-written
	return err
}

func writeSkill(form *multipart.Writer, displayName string, files []SkillFile) error {
	if displayName != "" {
		if err := form.WriteField("display_name", displayName); err != nil {
			return err
		}
	}
	for _, f := range files {
		w, err := form.CreatePart(textproto.MIMEHeader{"Content-Disposition": {`form-data; name="files[]"; filename="` +
			quoteEscaper.Replace(f.Path) + `"`}})
		if err != nil {
			return err
		}
		in, err := f.Open()
		if err != nil {
			return err
		}
		_, err = io.Copy(w, in)
		in.Close()
		if err != nil {
			return err
		}
	}
	return form.Close()
}

// Skills lists skills, newest first, followed by those that the daemon provides.
func (c *Client) Skills(ctx context.Context) ([]Skill, error) {
	return pages[Skill](ctx, c, at("skills"))
}

// SkillVersions lists the versions of a skill, newest first.
func (c *Client) SkillVersions(ctx context.Context, id string) ([]SkillVersion, error) {
	return pages[SkillVersion](ctx, c, at("skills", id, "versions"))
}

// pages reads all pages of a list.
func pages[T any](ctx context.Context, c *Client, path string) (all []T, err error) {
	q := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		var page struct {
			Data     []T     `json:"data"`
			NextPage *string `json:"next_page"`
		}
		if _, err := c.call(ctx, request{method: http.MethodGet, path: path, query: q, header: filesVersion},
			&page); err != nil {
			return nil, err
		}
		all = append(all, page.Data...)
		if page.NextPage == nil || *page.NextPage == "" {
			return all, nil
		}
		q.Set("page", *page.NextPage)
	}
}

// SkillContent opens the files of a skill's version as a zip archive. version may be "latest".
func (c *Client) SkillContent(ctx context.Context, id, version string) (*Download, error) {
	return c.download(ctx, request{method: http.MethodGet, path: at("skills", id, "versions", version, "content"),
		header: filesVersion})
}

// DeleteSkill deletes a skill with its versions.
func (c *Client) DeleteSkill(ctx context.Context, id string) error {
	_, err := c.call(ctx, request{method: http.MethodDelete, path: at("skills", id), header: filesVersion}, nil)
	return err
}
