// Creates a container, puts a file, runs a command, lists, meets an error and deletes, with a client that oapi-codegen
// has made.
package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
)

func check(name string, ok bool, status int, body []byte, err error) {
	if ok && err == nil {
		fmt.Println("PASS", name)
	} else {
		fmt.Println("FAIL", name, status, strings.TrimSpace(string(body)), err)
	}
}

func main() {
	ctx := context.Background()
	key := func(_ context.Context, req *http.Request) error {
		req.Header.Set("X-Api-Key", os.Getenv("BERTH_API_KEY"))
		return nil
	}
	berth, err := NewClientWithResponses(os.Getenv("BERTH_URL"), WithRequestEditorFn(key))
	if err != nil {
		panic(err)
	}

	name, labels := "generated-go", map[string]string{"by": "generator-go"}
	made, err := berth.CreateContainerWithResponse(ctx, nil, CreateContainer{Name: &name, Labels: &labels})
	if err != nil || made.JSON201 == nil {
		panic(fmt.Sprint(made, err))
	}
	id := made.JSON201.Id
	check("create", made.JSON201.State == "running", made.StatusCode(), made.Body, err)

	put, err := berth.WriteFileWithBodyWithResponse(ctx, id, &WriteFileParams{Path: "data.csv"},
		"application/octet-stream", strings.NewReader("Oslo,4\nLima,19\n"))
	check("put", err == nil && put.JSON200 != nil && put.JSON200.SizeBytes == 15, put.StatusCode(), put.Body, err)

	read, err := berth.ReadFileWithResponse(ctx, id, &ReadFileParams{Path: "data.csv"})
	check("read", string(read.Body) == "Oslo,4\nLima,19\n", read.StatusCode(), read.Body, err)

	command, cwd := "wc -l <data.csv", "/workspace"
	ran, err := berth.RunWithResponse(ctx, id, nil, Cmd{Command: &command, Cwd: &cwd})
	if err != nil || ran.JSON200 == nil {
		panic(fmt.Sprint(ran, err))
	}
	out, err := ran.JSON200.Result.AsBashResult()
	check("run", out.Stdout == "2\n", ran.StatusCode(), ran.Body, err)

	list, err := berth.ListContainersWithResponse(ctx, &ListContainersParams{Label: &[]string{"by=generator-go"}})
	check("list", list.JSON200 != nil && len(list.JSON200.Data) == 1 && !list.JSON200.HasMore, list.StatusCode(),
		list.Body, err)

	failed, err := berth.StatFileWithResponse(ctx, id, &StatFileParams{Path: "nowhere"})
	check("error", failed.JSON404 != nil && failed.JSON404.Error.Code == "not_found", failed.StatusCode(), failed.Body,
		err)

	gone, err := berth.DeleteContainerWithResponse(ctx, id, nil)
	check("delete", gone.JSON200 != nil && gone.JSON200.Deleted, gone.StatusCode(), gone.Body, err)
}
