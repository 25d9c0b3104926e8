package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

const (
	// patience is longer than anything here takes, so that a hang fails instead of hanging.
	patience = 60 * time.Second
	// drainDeadline is the configuration's default: a stop that takes longer was cut off.
	drainDeadline = 20 * time.Second
)

// server is one scaler process on an address that it keeps over restarts.
type server struct {
	program, config string
	grpc, health    string
	process         *exec.Cmd
}

// vllmPage serves what a replica with a KV cache at 0.9 shows: two replicas at the default target of 0.8.
func vllmPage() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	page := "# HELP x x\n"
	for _, gauge := range []string{"num_requests_running 4.0", "num_requests_waiting 0.0", "kv_cache_usage_perc 0.9"} {
		var name, value string
		fmt.Sscan(gauge, &name, &value)
		page += fmt.Sprintf("# TYPE vllm:%s gauge\nvllm:%s{engine=\"0\",model_name=\"m\"} %s\n", name, name, value)
	}
	for _, counter := range []string{"prompt_tokens_total", "generation_tokens_total"} {
		page += fmt.Sprintf("# TYPE vllm:%s counter\nvllm:%s{engine=\"0\",model_name=\"m\"} 1000.0\n", counter, counter)
	}
	page += "# TYPE python_info gauge\npython_info 1.0\n"
	go http.Serve(listener, http.HandlerFunc(func(to http.ResponseWriter, _ *http.Request) {
		to.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		to.Write([]byte(page))
	}))
	return "http://" + listener.Addr().String() + "/metrics", nil
}

// freePort is free on both addresses.
func freePort() (int, error) {
	for range 100 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := first.Addr().(*net.TCPAddr).Port
		second, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", port))
		first.Close()
		if err == nil {
			second.Close()
			return port, nil
		}
	}
	return 0, fmt.Errorf("no port is free on 127.0.0.1 and 127.0.0.2")
}

func newServer(program, folder, host string, grpcPort, healthPort int, page string) (*server, error) {
	s := &server{
		program: program,
		config:  filepath.Join(folder, host+".yaml"),
		grpc:    fmt.Sprintf("%s:%d", host, grpcPort),
		health:  fmt.Sprintf("%s:%d", host, healthPort),
	}
	config := fmt.Sprintf("listen: {grpc: %q, http: %q, health: %q}\ntiers:\n- name: chat\n  namespace: serving\n"+
		"  source: {fixed: {urls: [%q]}}\n  scrape: {interval: 1s}\n  replicas: {min: 1, max: 8}\n",
		s.grpc, host+":0", s.health, page)
	return s, os.WriteFile(s.config, []byte(config), 0o644)
}

// start returns when the kubelet would call it ready.
func (s *server) start(ctx context.Context) error {
	s.process = exec.Command(s.program, "serve", "--log", "error", "--config", s.config)
	s.process.Stderr = os.Stderr
	if err := s.process.Start(); err != nil {
		return err
	}
	connection, err := grpc.NewClient(s.health, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	probe := grpc_health_v1.NewHealthClient(connection)
	for {
		// A new connection each time: grpc-go's own waits grow.
		connection.ResetConnectBackoff()
		answer, err := probe.Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "readiness"})
		if err == nil && answer.Status == grpc_health_v1.HealthCheckResponse_SERVING {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %v", s.grpc, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stop sends what the kubelet sends and returns how long it took to leave with success.
func (s *server) stop() (time.Duration, error) {
	began := time.Now()
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- s.process.Wait() }()
	select {
	case err := <-ended:
		return time.Since(began), err
	case <-time.After(patience):
		s.kill()
		return time.Since(began), fmt.Errorf("%s did not stop", s.grpc)
	}
}

func (s *server) kill() {
	if s.process != nil && s.process.Process != nil {
		s.process.Process.Kill()
	}
}
