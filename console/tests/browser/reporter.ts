// The results in the form of cargo's tests, so that dev/test counts them.
import type { FullResult, Reporter, TestCase, TestResult } from '@playwright/test/reporter';

/** Returns a message without the repeated lines of a wait. */
function shorten(message: string): string {
  const lines = message.split('\n');
  return [...new Set(lines)].slice(0, 25).join('\n');
}

export default class CargoReporter implements Reporter {
  private passed = 0;
  private failed = 0;

  onTestEnd(test: TestCase, result: TestResult): void {
    const passed = result.status === 'passed';
    this.passed += passed ? 1 : 0;
    this.failed += passed ? 0 : 1;
    console.log(`test ${test.title.replace(/\s+/g, '_')} ... ${passed ? 'ok' : 'FAILED'} (${(result.duration / 1000).toFixed(1)} s)`);
    for (const error of result.errors) console.log(`Error: ${shorten(error.message ?? '')}\n${error.snippet ?? ''}`);
  }

  onStdOut(text: string | Buffer): void {
    process.stdout.write(text);
  }

  onError(error: { message?: string }): void {
    this.failed += 1;
    console.log(`Error: ${error.message ?? ''}`);
  }

  onEnd(result: FullResult): void {
    const word = result.status === 'passed' ? 'ok' : 'FAILED';
    console.log(`test result: ${word}. ${this.passed} passed; ${this.failed} failed`);
  }
}
