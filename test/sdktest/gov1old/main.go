// Command gov1old drives the edge with one of the last Go SDKs that send the files beta header by
// themselves and page by after_id, as most deployed clients still do.
//
// It prints one line per row of the contract, "PASS 9" or "FAIL 9 why"; sdk_test.go reads them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

func main() {
	report("19", oldPager())
	report("skills", skills())
}

func report(row string, err error) {
	if err != nil {
		fmt.Printf("FAIL %s %s\n", row, strings.ReplaceAll(err.Error(), "\n", " "))
		return
	}
	fmt.Println("PASS", row)
}

// oldPager walks what is there, on a server that nobody else changes.
func oldPager() error {
	ctx := context.Background()
	client := anthropic.NewClient(option.WithBaseURL(os.Getenv("BERTH_STRICT_URL")), option.WithAPIKey(
		os.Getenv("BERTH_API_KEY")))
	var made []string
	for range 10 {
		f, err := client.Beta.Files.Upload(ctx, anthropic.BetaFileUploadParams{
			File: anthropic.File(strings.NewReader("x"), "x.txt", "text/plain")})
		if err != nil {
			return err
		}
		if f.JSON.ExtraFields["expires_at"].Raw() != "" {
			return errors.New(f.RawJSON())
		}
		made = append(made, f.ID)
	}
	slices.Reverse(made)
	for _, limit := range []int64{3, 5, 10, 100} {
		var walked []string
		pager := client.Beta.Files.ListAutoPaging(ctx, anthropic.BetaFileListParams{Limit: anthropic.Int(limit)})
		for pager.Next() {
			walked = append(walked, pager.Current().ID)
		}
		if pager.Err() != nil || !slices.Equal(walked, made) {
			return fmt.Errorf("limit %d: walked %v, want %v: %v", limit, walked, made, pager.Err())
		}
	}
	return nil
}
