// Command gov1 drives the edge with the last version 1 of the official Go SDK.
//
// It prints one line per row of the contract, "PASS 9" or "FAIL 9 why"; sdk_test.go reads them.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

var (
	ctx     = context.Background()
	baseURL = os.Getenv("BERTH_BASE_URL")
	key     = os.Getenv("BERTH_API_KEY")
	client  = anthropic.NewClient(option.WithBaseURL(baseURL), option.WithAPIKey(key))
)

func main() {
	row(1, keys)
	row(3, unknowns)
	row(8, typedAnswers)
	row(9, metadata)
	row(10, unnamed)
	row(19, legacyList)
	row(22, produced)
	row(24, deletes)
	row("skills", skills)
	row(44, blocks)
	row(45, sameAnswers)
}

func row(name any, check func() error) {
	if err := check(); err != nil {
		fmt.Printf("FAIL %v %s\n", name, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Printf("PASS %v\n", name)
}

func upload(name, kind, content string) (*anthropic.BetaFileMetadata, error) {
	return client.Beta.Files.Upload(ctx, anthropic.BetaFileUploadParams{File: anthropic.File(strings.NewReader(content),
		name, kind)})
}

func status(err error) int {
	var e *anthropic.Error
	if errors.As(err, &e) {
		return e.StatusCode
	}
	return 0
}

func keys() error {
	if _, err := client.Files.List(ctx, anthropic.FileListParams{}); err != nil {
		return err
	}
	if _, err := client.Files.List(ctx, anthropic.FileListParams{}, option.WithHeader("Authorization", "Bearer "+
		key)); err != nil {
		return fmt.Errorf("both headers: %w", err)
	}
	if _, err := client.Files.List(ctx, anthropic.FileListParams{}, option.WithHeaderDel("X-Api-Key")); status(
		err) != 401 {
		return fmt.Errorf("no key: %v", err)
	}
	_, err := client.Files.List(ctx, anthropic.FileListParams{}, option.WithAPIKey("wrong"))
	if status(err) != 401 || !strings.Contains(err.Error(), `"authentication_error"`) {
		return fmt.Errorf("wrong key: %v", err)
	}
	return nil
}

// unknowns relies on this SDK sending ?beta=true with every call of its beta namespace.
func unknowns() error {
	sawBeta := false
	_, err := client.Beta.Files.List(ctx, anthropic.BetaFileListParams{Betas: []anthropic.AnthropicBeta{
		"nobody-knows-1999-01-01"}},
		option.WithQuery("color", "blue"),
		option.WithMiddleware(func(r *http.Request, next option.MiddlewareNext) (*http.Response, error) {
			sawBeta = r.URL.Query().Get("beta") == "true"
			return next(r)
		}))
	if err == nil && !sawBeta {
		err = errors.New("the SDK did not send beta=true, so this proves nothing")
	}
	return err
}

// typedAnswers fails if an answer were not JSON: the SDK refuses it.
func typedAnswers() error {
	f, err := upload("a.txt", "text/plain", "a")
	if err != nil {
		return err
	}
	if _, err := client.Beta.Files.GetMetadata(ctx, f.ID, anthropic.BetaFileGetMetadataParams{}); err != nil {
		return err
	}
	_, err = client.Beta.Files.Delete(ctx, f.ID, anthropic.BetaFileDeleteParams{})
	return err
}

func metadata() error {
	f, err := upload("data.csv", "text/csv", "a,b\n1,2\n")
	if err != nil {
		return err
	}
	ok := strings.HasPrefix(f.ID, "file_") && f.Filename == "data.csv" && f.MimeType == "text/csv" &&
		f.SizeBytes == 8 &&
		!f.Downloadable && f.JSON.Downloadable.Valid() && f.JSON.ExpiresAt.Raw() == "null" && !f.CreatedAt.IsZero()
	if !ok {
		return errors.New(f.RawJSON())
	}
	return nil
}

func unnamed() error {
	f, err := client.Beta.Files.Upload(ctx, anthropic.BetaFileUploadParams{File: bytes.NewReader([]byte("x"))})
	if err != nil {
		return err
	}
	if f.Filename != "unnamed.bin" {
		return errors.New(f.RawJSON())
	}
	return nil
}

func legacyList() error {
	f, err := upload("legacy.txt", "text/plain", "x")
	if err != nil {
		return err
	}
	page, err := client.Beta.Files.List(ctx, anthropic.BetaFileListParams{Betas: []anthropic.AnthropicBeta{
		anthropic.AnthropicBetaFilesAPI2025_04_14}, Limit: anthropic.Int(1)})
	if err != nil {
		return err
	}
	var raw struct {
		HasMore *bool   `json:"has_more"`
		First   *string `json:"first_id"`
		Last    *string `json:"last_id"`
		Data    []map[string]any
	}
	if err := json.Unmarshal([]byte(page.RawJSON()), &raw); err != nil {
		return err
	}
	_, hasExpiry := raw.Data[0]["expires_at"]
	if raw.HasMore == nil || !*raw.HasMore || raw.First == nil || *raw.First != f.ID || raw.Last == nil ||
		*raw.Last != f.ID || hasExpiry {
		return errors.New(page.RawJSON())
	}
	return nil
}

func produced() error {
	res, err := client.Beta.Files.Download(ctx, os.Getenv("BERTH_PRODUCED_ID"), anthropic.BetaFileDownloadParams{})
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
	res, err := client.Beta.Files.Download(ctx, id, anthropic.BetaFileDownloadParams{})
	if err != nil {
		return err
	}
	err = checkContent(res, os.Getenv("BERTH_BIG_SHA256"), func() error {
		d, err := client.Beta.Files.Delete(ctx, id, anthropic.BetaFileDeleteParams{})
		if err == nil && (d.ID != id || d.Type != "file_deleted") {
			err = errors.New(d.RawJSON())
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete during download: %w", err)
	}
	if _, err := client.Beta.Files.Delete(ctx, id, anthropic.BetaFileDeleteParams{}); status(err) != 404 {
		return fmt.Errorf("second delete: %v", err)
	}
	if _, err := client.Beta.Files.GetMetadata(ctx, id, anthropic.BetaFileGetMetadataParams{}); status(err) != 404 {
		return fmt.Errorf("later get: %v", err)
	}
	return nil
}
