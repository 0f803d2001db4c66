// Command gov2 drives the edge with version 2 of the official Go SDK.
//
// It prints one line per row of the contract, "PASS 9" or "FAIL 9 why"; sdk_test.go reads them.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/anthropics/anthropic-sdk-go/v2/option"
)

var (
	ctx    = context.Background()
	key    = os.Getenv("BERTH_API_KEY")
	client = anthropic.NewClient(option.WithBaseURL(os.Getenv("BERTH_BASE_URL")), option.WithAPIKey(key))
	strict = anthropic.NewClient(option.WithBaseURL(os.Getenv("BERTH_STRICT_URL")), option.WithAPIKey(key))
)

func main() {
	row(1, keys)
	row(4, requestIDs)
	row(6, errorCodes)
	row(7, retries)
	row(8, typedAnswers)
	row(9, metadata)
	row(10, unnamed)
	row(11, names)
	row(12, expiry)
	row(16, paging)
	row(18, ids)
	row(21, downloadModes)
	row(22, produced)
	row(24, deletes)
	row("skills", skills)
	row(44, both(blocks))
	row(45, sameAnswers)
	row(46, both(pauses))
	row(47, both(mixed))
	row(48, both(runner))
}

func row(name any, check func() error) {
	if err := check(); err != nil {
		fmt.Printf("FAIL %v %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("PASS %v\n", name)
}

func upload(name, kind, content string) (*anthropic.FileMetadata, error) {
	return client.Files.Upload(ctx, anthropic.FileUploadParams{File: anthropic.File(strings.NewReader(content), name,
		kind)})
}

func get(id string, opts ...option.RequestOption) (*anthropic.FileMetadata, error) {
	return client.Files.GetMetadata(ctx, id, anthropic.FileGetMetadataParams{}, opts...)
}

// want checks an SDK error's status and error code.
func want(err error, status int, code string) error {
	var e *anthropic.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("no API error: %v", err)
	}
	if e.StatusCode != status || string(e.ErrorCode()) != code {
		return fmt.Errorf("got %d %q, want %d %q: %v", e.StatusCode, e.ErrorCode(), status, code, err)
	}
	return nil
}

func keys() error {
	list := func(opts ...option.RequestOption) error {
		_, err := client.Files.List(ctx, anthropic.FileListParams{}, opts...)
		return err
	}
	if err := list(); err != nil {
		return err
	}
	if err := list(option.WithHeader("X-Api-Key", key)); err != nil {
		return fmt.Errorf("both headers: %w", err)
	}
	return want(list(option.WithAPIKey("wrong")), 401, "")
}

func requestIDs() error {
	var res *http.Response
	if _, err := client.Files.List(ctx, anthropic.FileListParams{}, option.WithResponseInto(&res)); err != nil {
		return err
	}
	if id := res.Header.Get("request-id"); !strings.HasPrefix(id, "req_") {
		return fmt.Errorf("request-id %q", id)
	}
	_, err := get("file_0000000000000000000000")
	var e *anthropic.Error
	if !errors.As(err, &e) || !strings.HasPrefix(e.RequestID, "req_") ||
		!strings.Contains(e.RawJSON(), `"request_id":"`+e.RequestID+`"`) {
		return fmt.Errorf("%v", err)
	}
	return nil
}

func errorCodes() error {
	_, err := client.Files.Upload(ctx, anthropic.FileUploadParams{File: anthropic.File(io.LimitReader(zeros{}, 3<<20),
		"big", "text/plain")},
		option.WithBaseURL(os.Getenv("BERTH_SMALL_URL")))
	return want(err, 400, "storage_quota_exceeded")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// retries asks for files that the server under test fails on purpose. It counts attempts too.
func retries() error {
	attempts := 0
	count := option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
		attempts++
		return next(r)
	})
	for id, status := range map[string]int{"file_conflict": 409, "file_broken": 500} {
		attempts = 0
		_, err := get(id, count)
		if err := want(err, status, ""); err != nil {
			return err
		}
		if attempts != 1 {
			return fmt.Errorf("%s: %d attempts", id, attempts)
		}
	}
	attempts = 0
	start := time.Now()
	if _, err := get("file_busy", count); err != nil {
		return err
	}
	if waited := time.Since(start); attempts != 2 || waited < time.Second {
		return fmt.Errorf("busy: %d attempts in %v", attempts, waited)
	}
	return nil
}

// typedAnswers fails if an answer were not JSON: the SDK refuses it.
func typedAnswers() error {
	f, err := upload("a.txt", "text/plain", "a")
	if err != nil {
		return err
	}
	if _, err := get(f.ID); err != nil {
		return err
	}
	_, err = client.Files.Delete(ctx, f.ID, anthropic.FileDeleteParams{})
	return err
}

func metadata() error {
	f, err := upload("data.csv", "text/csv", "a,b\n1,2\n")
	if err != nil {
		return err
	}
	ok := strings.HasPrefix(f.ID, "file_") && f.Type == "file" && f.Filename == "data.csv" &&
		f.MimeType == "text/csv" && f.SizeBytes == 8 &&
		!f.Downloadable && f.JSON.Downloadable.Valid() && f.JSON.ExpiresAt.Raw() == "null" && !f.CreatedAt.IsZero() &&
		len(f.JSON.ExtraFields) == 0
	if !ok {
		return errors.New(f.RawJSON())
	}
	return nil
}

func unnamed() error {
	f, err := client.Files.Upload(ctx, anthropic.FileUploadParams{File: bytes.NewReader([]byte("x"))})
	if err != nil {
		return err
	}
	if f.Filename != "unnamed.bin" {
		return errors.New(f.RawJSON())
	}
	return nil
}

func names() error {
	for sent, kept := range map[string]string{"naïve 数据.csv": "naïve 数据.csv", "../../etc/passwd": "passwd",
		"100%25.csv": "100%25.csv"} {
		f, err := upload(sent, "text/plain", "x")
		if err != nil {
			return fmt.Errorf("%q: %w", sent, err)
		}
		if f.Filename != kept {
			return fmt.Errorf("%q became %q", sent, f.Filename)
		}
	}
	for _, bad := range []string{`a"b`, `a\b`, "a<b", "a|b", "a?b"} {
		_, err := upload(bad, "text/plain", "x")
		if err := want(err, 400, ""); err != nil {
			return fmt.Errorf("%q: %w", bad, err)
		}
	}
	return nil
}

func expiry() error {
	up := func(seconds int64) (*anthropic.FileMetadata, error) {
		return client.Files.Upload(ctx, anthropic.FileUploadParams{File: anthropic.File(strings.NewReader("x"), "x",
			"text/plain"), ExpiresInSeconds: anthropic.Int(seconds)})
	}
	f, err := up(3600)
	if err != nil {
		return err
	}
	if f.ExpiresAt.Sub(f.CreatedAt) != time.Hour {
		return errors.New(f.RawJSON())
	}
	for _, seconds := range []int64{3599, 7776001} {
		_, err := up(seconds)
		if err := want(err, 400, ""); err != nil {
			return err
		}
	}
	return nil
}

// paging walks what is there, on a server of its own that nobody else changes.
func paging() error {
	var made, walked []string
	alone := option.WithBaseURL(os.Getenv("BERTH_STRICT_URL"))
	for range 25 {
		f, err := client.Files.Upload(ctx, anthropic.FileUploadParams{File: strings.NewReader("x")}, alone)
		if err != nil {
			return err
		}
		made = append(made, f.ID)
	}
	slices.Reverse(made)
	for _, limit := range []int64{7, 25, 1000} {
		walked = nil
		pager := client.Files.ListAutoPaging(ctx, anthropic.FileListParams{Limit: anthropic.Int(limit)}, alone)
		for pager.Next() {
			walked = append(walked, pager.Current().ID)
		}
		if pager.Err() != nil || !slices.Equal(walked, made) {
			return fmt.Errorf("limit %d: walked %v, want %v: %v", limit, walked, made, pager.Err())
		}
	}
	page, err := client.Files.List(ctx, anthropic.FileListParams{}, alone)
	if err != nil || len(page.Data) != 20 {
		return fmt.Errorf("default limit: %v", err)
	}
	return nil
}

func ids() error {
	f, err := upload("x", "text/plain", "x")
	if err != nil {
		return err
	}
	page, err := client.Files.List(ctx, anthropic.FileListParams{IDs: []string{f.ID, "file_0000000000000000000000",
		f.ID}})
	if err != nil {
		return err
	}
	if len(page.Data) != 1 || page.Data[0].ID != f.ID || page.NextPage != "" {
		return errors.New(page.RawJSON())
	}
	_, err = client.Files.List(ctx, anthropic.FileListParams{IDs: []string{f.ID}, Limit: anthropic.Int(1)})
	return want(err, 400, "")
}

func downloadModes() error {
	up := anthropic.FileUploadParams{File: anthropic.File(strings.NewReader("mine"), "x", "text/plain")}
	f, err := strict.Files.Upload(ctx, up)
	if err != nil {
		return err
	}
	_, err = strict.Files.Download(ctx, f.ID, anthropic.FileDownloadParams{})
	if err := want(err, 400, "file_not_downloadable"); err != nil {
		return err
	}
	f, err = upload("x", "text/plain", "mine")
	if err != nil {
		return err
	}
	res, err := client.Files.Download(ctx, f.ID, anthropic.FileDownloadParams{})
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if data, err := io.ReadAll(res.Body); err != nil || string(data) != "mine" {
		return fmt.Errorf("%q, %v", data, err)
	}
	return nil
}

func produced() error {
	res, err := client.Files.Download(ctx, os.Getenv("BERTH_PRODUCED_ID"), anthropic.FileDownloadParams{})
	if err != nil {
		return err
	}
	return checkContent(res, os.Getenv("BERTH_PRODUCED_SHA256"), nil)
}

// checkContent reads an answer, after the first bytes of which it calls between.
func checkContent(res *http.Response, sum string, between func() error) error {
	defer res.Body.Close()
	h := sha256.New()
	n, err := io.CopyN(h, res.Body, 1000)
	if err != nil {
		return err
	}
	if between != nil {
		if err := between(); err != nil {
			return err
		}
	}
	m, err := io.Copy(h, res.Body)
	if err != nil {
		return err
	}
	if hex.EncodeToString(h.Sum(nil)) != sum || res.ContentLength != n+m ||
		res.Header.Get("Content-Type") != "image/png" {
		return fmt.Errorf("%d bytes of %d, type %s, wrong content or headers", n+m, res.ContentLength,
			res.Header.Get("Content-Type"))
	}
	return nil
}

func deletes() error {
	id := os.Getenv("BERTH_BIG_ID")
	res, err := client.Files.Download(ctx, id, anthropic.FileDownloadParams{})
	if err != nil {
		return err
	}
	err = checkContent(res, os.Getenv("BERTH_BIG_SHA256"), func() error {
		d, err := client.Files.Delete(ctx, id, anthropic.FileDeleteParams{})
		if err == nil && (d.ID != id || d.Type != "file_deleted") {
			err = errors.New(d.RawJSON())
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete during download: %w", err)
	}
	_, err = client.Files.Delete(ctx, id, anthropic.FileDeleteParams{})
	if err := want(err, 404, ""); err != nil {
		return fmt.Errorf("second delete: %w", err)
	}
	_, err = get(id)
	return want(err, 404, "")
}
