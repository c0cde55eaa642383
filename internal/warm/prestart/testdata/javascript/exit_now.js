console.log('a'.repeat(50000)); process.exit(3); console.log('never');
