package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"berth/client"
	"berth/proto"
)

// Create a container, upload a file into it, run a command, and delete the container.
func Example() {
	ctx := context.Background()
	c, err := client.New(client.Config{Host: "http://127.0.0.1:7117", Key: os.Getenv("BERTH_API_KEY")})
	if err != nil {
		log.Fatal(err)
	}

	container, err := c.Create(ctx, proto.CreateContainer{Image: "base", IdleTimeoutSeconds: 600})
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		if _, err := c.Delete(ctx, container.ID, false); err != nil {
			log.Print(err)
		}
	}()

	data := "3\n1\n2\n"
	files := c.FS(container.ID, proto.UserDefault)
	if _, err := files.Write(ctx, "/workspace/data.txt", 0o644, strings.NewReader(data), int64(len(data))); err != nil {
		log.Fatal(err)
	}

	res, err := c.Run(ctx, container.ID, proto.Cmd{Command: "sort /workspace/data.txt", TimeoutSeconds: 10})
	if err != nil {
		log.Fatal(err)
	}
	if res.Exec.End.Reason != proto.EndExit || res.Result.Result == nil {
		log.Fatalf("the command ended by %s: %s", res.Exec.End.Reason, res.Exec.End.Message)
	}
	fmt.Print(res.Result.Result.Stdout)
}

// Store a file for all containers, and mount it into a new one.
func ExampleClient_UploadFile() {
	ctx := context.Background()
	c, err := client.New(client.Config{Host: "http://127.0.0.1:7117", Key: os.Getenv("BERTH_API_KEY")})
	if err != nil {
		log.Fatal(err)
	}
	f, err := os.Open("report.csv")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	stored, err := c.UploadFile(ctx, client.Upload{Name: "report.csv", Body: f})
	if err != nil {
		log.Fatal(err)
	}
	// The file is in $INPUT_DIR of each command in the container.
	container, err := c.Create(ctx, proto.CreateContainer{Files: []string{stored.ID}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(container.ID)
}

// Errors of the daemon have a code. The other types mean that no daemon answered.
func ExampleMissingError() {
	c, err := client.New(client.Config{Host: "http://127.0.0.1:7117"})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Container(context.Background(), "container_0000000000000000000000")
	var missing *client.MissingError
	var dial *client.DialError
	switch {
	case errors.As(err, &missing):
		fmt.Println("no such item:", missing.Kind, missing.Name)
	case errors.As(err, &dial):
		fmt.Println("no daemon at", dial.Host)
	case proto.CodeOf(err) == proto.TooMany:
		fmt.Println("retry after", proto.AsError(err).RetryAfter, "seconds")
	}
}
