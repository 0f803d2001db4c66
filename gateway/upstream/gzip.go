package upstream

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"

	"berth/proto"
)

// decompress has the body of an answer be plain that some proxies compress though they are asked not to.
func (u *Upstream) decompress(res *http.Response) {
	if res.Header.Get("Content-Encoding") != "gzip" {
		return
	}
	res.Header.Del("Content-Encoding")
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	res.Body = &gzipBody{u: u, src: res.Body}
}

// A packed body is unpacked while it is read.
type gzipBody struct {
	u   *Upstream
	src io.ReadCloser
	out *gzip.Reader // nil: nothing was read
}

// Read fails with a *proto.Error where the answer breaks off.
func (p *gzipBody) Read(b []byte) (n int, err error) {
	if p.out == nil {
		p.out, err = gzip.NewReader(p.src)
	}
	if err == nil {
		n, err = p.out.Read(b)
	}
	var own *proto.Error
	if err == nil || err == io.EOF || errors.As(err, &own) {
		return n, err
	}
	return n, p.u.errorf(proto.Unavailable, "sent an answer that cannot be unpacked")
}

// Close closes the answer.
func (p *gzipBody) Close() error { return p.src.Close() }
