package upstream

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"

	"berth/proto"
)

// decompress replaces a gzip body by one that decompresses it. Some proxies compress although the request forbids it.
func (u *Upstream) decompress(res *http.Response) {
	if res.Header.Get("Content-Encoding") != "gzip" {
		return
	}
	res.Header.Del("Content-Encoding")
	res.Header.Del("Content-Length")
	res.ContentLength = -1
	res.Body = &gzipBody{u: u, src: res.Body}
}

// A gzipBody decompresses a body while it is read.
type gzipBody struct {
	u   *Upstream
	src io.ReadCloser
	out *gzip.Reader // nil until the first Read
}

// Read returns a *proto.Error if the answer breaks off.
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

// Close closes the compressed body.
func (p *gzipBody) Close() error { return p.src.Close() }
