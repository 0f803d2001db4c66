package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

// skills goes through the older dialect, which this SDK asks for by itself: titles, and versions that are numbers.
func skills() error {
	ctx := context.Background()
	client := anthropic.NewClient(option.WithBaseURL(os.Getenv("BERTH_STRICT_URL")), option.WithAPIKey(
		os.Getenv("BERTH_API_KEY")))
	files := func(description string) []io.Reader {
		return []io.Reader{anthropic.File(strings.NewReader("---\nname: notes\ndescription: "+description+"\n---\n"),
			"notes/SKILL.md", "text/markdown")}
	}
	k, err := client.Beta.Skills.New(ctx, anthropic.BetaSkillNewParams{Files: files("One."),
		DisplayTitle: anthropic.String("Notes of mine")})
	if err != nil {
		return err
	}
	if k.DisplayTitle != "Notes of mine" || k.Source != "custom" || !regexp.MustCompile(`^\d{16}$`).MatchString(
		k.LatestVersion) {
		return errors.New(k.RawJSON())
	}
	v, err := client.Beta.Skills.Versions.New(ctx, k.ID, anthropic.BetaSkillVersionNewParams{Files: files("Two.")})
	if err != nil {
		return err
	}
	if v.Directory != "notes" || v.Version <= k.LatestVersion || v.Description != "Two." {
		return errors.New(v.RawJSON())
	}
	got, err := client.Beta.Skills.Versions.Get(ctx, v.Version, anthropic.BetaSkillVersionGetParams{SkillID: k.ID})
	if err != nil || got.ID != v.ID {
		return fmt.Errorf("by its number: %v, %v", got, err)
	}
	// This dialect refuses to delete a skill that has versions.
	if _, err := client.Beta.Skills.Delete(ctx, k.ID, anthropic.BetaSkillDeleteParams{}); err == nil ||
		!strings.Contains(err.Error(), "400") {
		return fmt.Errorf("deleted with its versions: %v", err)
	}
	for _, version := range []string{k.LatestVersion, v.Version} {
		gone, err := client.Beta.Skills.Versions.Delete(ctx, version, anthropic.BetaSkillVersionDeleteParams{
			SkillID: k.ID})
		if err != nil || gone.ID != version {
			return fmt.Errorf("deleting version %s: %v, %v", version, gone, err)
		}
	}
	_, err = client.Beta.Skills.Delete(ctx, k.ID, anthropic.BetaSkillDeleteParams{})
	return err
}
