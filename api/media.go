package api

import (
	"mime"
	"net/http"
	"slices"
	"strings"

	"berth/proto"
)

// anyMedia is what curl sends unless told otherwise.
const anyMedia = "application/x-www-form-urlencoded"

// checkMedia refuses a body of another media type than the route takes, with 415. A body without a type is accepted.
// Compressed bodies are refused, too: the compressed bytes would be stored.
func checkMedia(r *http.Request, takes []string) error {
	if len(takes) == 0 || r.ContentLength == 0 {
		return nil
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		return unsupportedMedia("Content-Encoding",
			"Compressed request bodies are not supported; send the body as it is.")
	}
	said := r.Header.Get("Content-Type")
	if said == "" || slices.Contains(takes, "*/*") {
		return nil
	}
	media, _, err := mime.ParseMediaType(said)
	ok := media == anyMedia || slices.Contains(takes, media) || strings.HasSuffix(media, "+json") &&
		slices.Contains(takes, "application/json")
	if err != nil || !ok {
		return unsupportedMedia("Content-Type", "This endpoint takes %s, not %.80q.", strings.Join(takes, " or "), said)
	}
	return nil
}

func unsupportedMedia(header, format string, args ...any) error {
	return WithStatus(http.StatusUnsupportedMediaType, proto.Errorf(proto.InvalidArgument, "", header, format, args...))
}
